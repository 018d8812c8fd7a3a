"""Inversion of passages into blocks: files with the postings of 65,536 rows each. A resumed build reuses finished blocks.

Threads analyse and invert the texts of blocks. Terms get their final numbers in row order, so that a build writes the same bytes with any
number of threads. The files of block ``n``, in the order of writing:

    <n>.terms.npy      int64, (2, terms of the block): the terms' numbers, ascending, and the end of each term's postings
    <n>.postings.npy   uint32: 65,536 * row within the block + tf of each posting
    <n>.rows.npz       the rows' lengths, and the terms that no earlier block has; its existence marks a finished block
"""

from __future__ import annotations

import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import save_array
from wikidx.base.artifacts.durable import atomic_write
from wikidx.base.compiled import interpreted, kernel
from wikidx.base.errors import InputError, StagingCorrupt
from wikidx.base.machine.memory import available_bytes
from wikidx.base.machine.threads import n_threads
from wikidx.base.progress import Progress
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.corpora.store.layout import DATABASE
from wikidx.indexer.analysis import Analyzer, TermTable
from wikidx.indexer.analysis.analyzer import AnalyzerFailed
from wikidx.indexer.analysis.dictionary import Dictionary

from .files import BLOCK_ROWS, MAX_TF

BYTES_PER_TEXT_BYTE = 1.6  # memory for inverting a block, per byte of its text; measured on 20,000 articles of 20 kB
_TEXT_PER_STORED_BYTE = 2.5


class InvertedBlock(NamedTuple):
    """The inverted text of a block.

    Attributes:
        terms: the block's terms, numbered in order of appearance.
        ends: end of each term's postings, int64.
        postings: 65,536 * row within the block + tf, uint32; term by term, and ascending for each term.
        lengths: number of terms of each row, uint32.
    """

    terms: TermTable
    ends: NDArray[np.int64]
    postings: NDArray[np.uint32]
    lengths: NDArray[np.uint32]


class BlockFiles(NamedTuple):
    """The files of a finished block. Terms and postings are memory-mapped."""

    terms: NDArray[np.int64]
    postings: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    new_pool: NDArray[np.uint8]
    new_ends: NDArray[np.uint32]


class Inverter:
    """Threads that invert blocks of passages and write them in row order. Finished blocks of an interrupted build are kept.

    Attributes:
        n_blocks: number of blocks that are finished or submitted.
    """

    def __init__(
        self, folder: Path, analyzer: Analyzer, n_threads: int, progress: Callable[[int], object] = lambda n_finished: None
    ) -> None:
        """Read the terms of the finished blocks.

        Args:
            folder: folder of the blocks.
            analyzer: the analyzer of their texts.
            n_threads: number of blocks to invert at the same time.
            progress: called with the number of finished blocks.

        Raises:
            StagingCorrupt: a finished block cannot be read.
        """
        folder.mkdir(exist_ok=True)
        self.n_blocks, self._dictionary = 0, Dictionary()
        self._folder, self._analyzer, self._n_threads, self._progress = folder, analyzer, n_threads, progress
        while _marker_path(folder, self.n_blocks).exists():
            finished = read_block(folder, self.n_blocks)
            self._dictionary.add(finished.new_pool, finished.new_ends)
            self.n_blocks += 1
            progress(self.n_blocks)
        self._pool = ThreadPoolExecutor(n_threads)
        self._pending = deque[Future[None]]()

    def submit(self, batches: Iterable[Sequence[Passage]], n_bytes: int) -> None:
        """Invert the next block in a thread, once one is free; raises the exception of an earlier block.

        Args:
            batches: the passages of the block, in several parts.
            n_bytes: approximate size of their text.
        """
        self._wait(self._n_threads - 1)
        previous = self._pending[-1] if self._pending else None
        self._pending.append(self._pool.submit(self._run, self.n_blocks, batches, n_bytes, previous))
        self.n_blocks += 1

    def finish(self) -> Dictionary:
        """Wait until all blocks are written, and return the dictionary of all terms; raises the exception of a block."""
        self._wait(0)
        return self._dictionary

    def close(self) -> None:
        """End the threads; blocks that are not begun are left out."""
        self._pool.shutdown(cancel_futures=True)

    def _wait(self, n_pending: int) -> None:
        """Wait until at most ``n_pending`` blocks are unfinished."""
        while len(self._pending) > n_pending:
            self._pending.popleft().result()
            self._progress(self.n_blocks - len(self._pending))

    def _run(self, n: int, batches: Iterable[Sequence[Passage]], n_bytes: int, previous: Future[None] | None) -> None:
        with interpreted(n_bytes):  # applies to this thread only
            block = _invert_block(batches, self._analyzer)
            if previous is not None:
                previous.result()  # it has numbered its terms
            _write_block(self._folder, n, block, self._dictionary)


def invert(store: PassageStore, analyzer: Analyzer, folder: Path, progress: Progress) -> Dictionary:
    """Write the unfinished blocks of a store to ``folder``, and return the dictionary of all terms.

    Raises:
        InputError: the analyzer fails, or there are more terms than an index can have.
        StagingCorrupt: a finished block cannot be read.
    """
    n_rows = len(store)
    n_bytes = int(text_bytes(store) * min(1, BLOCK_ROWS / max(1, n_rows)))
    n_parallel = max_parallel_blocks(n_bytes) + 1  # the last one waits for the disk
    inverter = Inverter(folder, analyzer, n_parallel, lambda n_finished: progress(min(n_finished * BLOCK_ROWS, n_rows), n_rows))
    with closing(inverter):
        for first in range(inverter.n_blocks * BLOCK_ROWS, n_rows, BLOCK_ROWS):
            inverter.submit(store.read_batches(first, first + BLOCK_ROWS), n_bytes)
        return inverter.finish()


def text_bytes(store: PassageStore) -> int:
    """Estimate the bytes of a store's texts from the size of its compressed file."""
    return int(_TEXT_PER_STORED_BYTE * (store.folder / DATABASE).stat().st_size)


def max_parallel_blocks(text_bytes: float) -> int:
    """Return the number of blocks to invert in parallel: at most one per thread, and no more than fit into half of the free memory.

    ``text_bytes`` is the size of a block's text.
    """
    return max(1, min(n_threads(), int(available_bytes() / 2 / (BYTES_PER_TEXT_BYTE * max(1, text_bytes)))))


def count_blocks(folder: Path) -> int:
    """Return the number of finished blocks."""
    return len(list(folder.glob("*.rows.npz")))


def read_block(folder: Path, n: int) -> BlockFiles:
    """Open the files of a finished block.

    Raises:
        StagingCorrupt: a file cannot be read.
    """
    terms, postings = read_postings(folder, n)
    try:
        with (
            _marker_path(folder, n).open("rb") as file,
            np.load(file) as arrays,
        ):  # numpy itself would leak a file that it cannot read
            return BlockFiles(terms, postings, arrays["lengths"], arrays["pool"], arrays["ends"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StagingCorrupt.of(error, folder, f"block {n} in {folder} cannot be read: {error}") from error


def read_postings(folder: Path, n: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Map the terms and postings of a finished block; raises as ``read_block`` does."""
    try:
        terms, postings = (np.load(folder / f"{n:05d}.{part}.npy", mmap_mode="r") for part in ("terms", "postings"))
    except (OSError, ValueError, EOFError) as error:
        raise StagingCorrupt.of(error, folder, f"block {n} in {folder} cannot be read: {error}") from error
    if len(terms[1]) and terms[1][-1] != len(postings):
        raise StagingCorrupt(f"block {n} in {folder} has {len(postings)} postings instead of {terms[1][-1]}")
    return terms, postings


def _invert_block(batches: Iterable[Sequence[Passage]], analyzer: Analyzer) -> InvertedBlock:
    numbers = analyzer.new_numbering()
    occurrences, ends = [], []
    for passages in batches:
        try:
            terms, row_ends = numbers.add([f"{passage.title}\n{passage.text}" for passage in passages])
        except AnalyzerFailed as error:
            position, reason = next(iter(error.reasons.items()))
            raise InputError(f"passage {passages[position].id!r:.80}: {reason}") from error
        occurrences.append(terms)
        ends.append(np.diff(row_ends, prepend=0))
    lengths = np.concatenate(ends)
    term_ends, postings = _collect_postings(np.concatenate(occurrences), np.cumsum(lengths), len(numbers))
    return InvertedBlock(numbers.table(), term_ends, postings, lengths.astype(np.uint32))


def _write_block(folder: Path, n: int, block: InvertedBlock, dictionary: Dictionary) -> None:
    n_known = len(dictionary)
    numbers = dictionary.add(block.terms.pool, block.terms.ends).astype(np.int64)
    order = np.argsort(numbers)
    ends = np.cumsum(np.diff(block.ends, prepend=0)[order])
    save_array(folder / f"{n:05d}.terms.npy", np.stack([numbers[order], ends]))
    save_array(folder / f"{n:05d}.postings.npy", _reorder(block.postings, block.ends, order))
    pool, new_ends = dictionary.pool_and_ends(n_known)
    with atomic_write(_marker_path(folder, n)) as file:
        np.savez(file, lengths=block.lengths, pool=pool, ends=new_ends)


def _marker_path(folder: Path, n: int) -> Path:
    return folder / f"{n:05d}.rows.npz"


@kernel
def _collect_postings(
    occurrences: NDArray[np.int32], row_ends: NDArray[np.int64], n_terms: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the end of each term's postings, and the postings of all terms.

    ``occurrences`` are the terms of all rows, concatenated; ``row_ends`` is the end of each row's terms.
    """
    last_row = np.full(n_terms, -1, dtype=np.int64)
    ends = np.zeros(n_terms, dtype=np.int64)
    start = 0
    for row in range(len(row_ends)):
        for term in occurrences[start : row_ends[row]]:
            if last_row[term] != row:
                last_row[term] = row
                ends[term] += 1
        start = row_ends[row]
    filled, n = np.empty(n_terms, dtype=np.int64), 0
    for term in range(n_terms):
        filled[term], last_row[term] = n, -1
        n += ends[term]
        ends[term] = n
    postings = np.zeros(n, dtype=np.uint32)
    start = 0
    for row in range(len(row_ends)):
        for term in occurrences[start : row_ends[row]]:
            if last_row[term] != row:
                last_row[term] = row
                postings[filled[term]] = row << 16
                filled[term] += 1
            if postings[filled[term] - 1] & MAX_TF < MAX_TF:
                postings[filled[term] - 1] += 1
        start = row_ends[row]
    return ends, postings


@kernel
def _reorder(postings: NDArray[np.uint32], ends: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the postings with the terms in another order."""
    result = np.empty_like(postings)
    target = 0
    for term in order:
        start = ends[term - 1] if term > 0 else 0
        for p in range(start, ends[term]):
            result[target] = postings[p]
            target += 1
    return result

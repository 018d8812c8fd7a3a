"""Merge of blocks into the files of an index. Ranges of terms are merged one after another, which limits the memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.analysis.dictionary import Dictionary

from .inversion import count_blocks, read_block, read_postings

FREQUENT_ABOVE = 1 / 8  # share of all rows above which adding to every row of a block is no slower than adding to the term's rows
RANGE_POSTINGS = 1 << 24


class Counted(NamedTuple):
    """Counts of all blocks: for each term its rows and its segments, for each row its terms."""

    rows: NDArray[np.int64]
    segments: NDArray[np.int64]
    lengths: NDArray[np.uint32]


class FrequentTerms(NamedTuple):
    """The frequent terms.

    Attributes:
        positions: each term's position among the frequent terms, or -1.
        impacts: ``frequent_impacts`` of ``files.Postings``.
    """

    positions: NDArray[np.int64]
    impacts: NDArray[np.uint8]


class TermRange(NamedTuple):
    """Postings of consecutive terms, filled block by block.

    Attributes:
        first_term: number of the first term.
        next_posting, next_segment: next free position for each term.
        rows, impacts, segment_blocks, segment_sizes: see ``files.Postings``.
    """

    first_term: int
    next_posting: NDArray[np.int64]
    next_segment: NDArray[np.int64]
    rows: NDArray[np.uint16]
    impacts: NDArray[np.uint8]
    segment_blocks: NDArray[np.uint16]
    segment_sizes: NDArray[np.uint16]


class BlockSlice(NamedTuple):
    """Postings of a range of terms in one block.

    Attributes:
        number: number of the block.
        numbers: numbers of the terms.
        ends: end of each term's postings.
        postings: see ``inversion.InvertedBlock``.
    """

    number: int
    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]
    postings: NDArray[np.uint32]


Fill = Callable[[TermRange, Iterator[BlockSlice], FrequentTerms], Sequence[NDArray[Any]]]
_OF_RANGES = ("rows", "impacts", "segment_blocks", "segment_sizes")


def count_postings(blocks: Path, n_terms: int) -> Counted:
    """Count the postings and segments of each term, and the terms of each row, in all blocks."""
    rows, segments, lengths = np.zeros(n_terms, np.int64), np.zeros(n_terms, np.int64), []
    for n in range(count_blocks(blocks)):
        block = read_block(blocks, n)
        numbers, ends = block.terms
        rows[numbers] += np.diff(ends, prepend=0)
        segments[numbers] += 1
        lengths.append(block.lengths)
    return Counted(rows, segments, np.concatenate(lengths))


def merge(folder: Path, blocks: Path, dictionary: Dictionary, counted: Counted, fill: Fill, further: Sequence[str]) -> None:
    """Write the files of ``files.Postings``.

    Args:
        folder: folder of the files.
        blocks: folder of the blocks.
        dictionary: all terms.
        counted: counts of the blocks; those of frequent terms become 0.
        fill: appends the postings and segments of each block to a range of terms, which has room for them, or to the impacts of frequent
            terms; returns further arrays.
        further: names of the files to which these arrays are appended, range by range.
    """
    n_rows = len(counted.lengths)
    frequent_terms = np.flatnonzero(counted.rows > FREQUENT_ABOVE * n_rows)
    frequent_term_dfs = counted.rows[frequent_terms]
    counted.rows[frequent_terms] = counted.segments[frequent_terms] = 0  # frequent terms have no segments
    starts, segment_starts = _starts(counted.rows), _starts(counted.segments)
    tables = {
        **dictionary.table()._asdict(),
        "posting_starts": starts,
        "segment_starts": segment_starts,
        "frequent_terms": frequent_terms,
        "frequent_term_dfs": frequent_term_dfs,
    }
    write_arrays(folder, tables)
    positions = np.full(len(dictionary), -1, dtype=np.int64)
    positions[frequent_terms] = np.arange(len(frequent_terms))
    frequent = FrequentTerms(positions, _allocate_file(folder / "frequent_impacts", len(frequent_terms) * n_rows))
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in (*_OF_RANGES, *further)]
        for first, end in _ranges(starts):
            term_range = _allocate_range(first, starts[first : end + 1], segment_starts[first : end + 1])
            further_arrays = fill(term_range, (_read_slice(blocks, n, first, end) for n in range(count_blocks(blocks))), frequent)
            written: list[NDArray[Any]] = [*term_range[-4:], *further_arrays]  # of _OF_RANGES
            for file, array in zip(files, written, strict=True):
                file.write(array.tobytes())


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write each array to the file of its name."""
    for name, array in arrays.items():
        (folder / name).write_bytes(array.tobytes())


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _allocate_file(path: Path, n_bytes: int) -> NDArray[np.uint8]:
    with path.open("wb") as file:
        file.truncate(n_bytes)
        if n_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)  # a full disk raises here; a later write to the map would crash
    return np.memmap(path, dtype=np.uint8, mode="r+") if n_bytes else np.empty(0, dtype=np.uint8)


def _ranges(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the first term and the end of each range. A range has up to ``RANGE_POSTINGS`` postings, or a single term with more."""
    first, n_terms = 0, len(starts) - 1
    while first < n_terms:
        end = max(first + 1, int(np.searchsorted(starts, starts[first] + RANGE_POSTINGS, side="right")) - 1)
        yield first, end
        first = end


def _allocate_range(first: int, starts: NDArray[np.int64], segment_starts: NDArray[np.int64]) -> TermRange:
    n_postings, n_segments = starts[-1] - starts[0], segment_starts[-1] - segment_starts[0]
    return TermRange(
        first,
        starts[:-1] - starts[0],
        segment_starts[:-1] - segment_starts[0],
        np.empty(n_postings, np.uint16),
        np.empty(n_postings, np.uint8),
        np.empty(n_segments, np.uint16),
        np.empty(n_segments, np.uint16),
    )


def _read_slice(blocks: Path, n: int, first: int, end: int) -> BlockSlice:
    (numbers, ends), postings = read_postings(blocks, n)
    low, high = np.searchsorted(numbers, [first, end])
    start, stop = (int(ends[i - 1]) if i else 0 for i in (low, high))
    return BlockSlice(n, np.array(numbers[low:high]), ends[low:high] - start, np.array(postings[start:stop]))

"""Merge of blocks into the files of an index. Ranges of terms are merged one after another, which limits the memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis.dictionary import Dictionary
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, MAX_TF
from wikidx.indexer.indexes.postings.inversion import count_blocks, read_block, read_postings

from .similarity import TermFrequencies, impact, inverse_norms, length_codes, mean_length, term_frequencies

FREQUENT_ABOVE = 1 / 8  # share of all rows above which adding to every row of a block is no slower than adding to the term's rows
RANGE_POSTINGS = 1 << 24


class Scoring(NamedTuple):
    """Inputs of the impacts: the length code of each row, the inverse norm of each code, and the tf of each impact."""

    lengths: NDArray[np.uint8]
    inverse: NDArray[np.float32]
    frequencies: TermFrequencies


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


class Exceptions(NamedTuple):
    """Exceptions (see ``similarity``): ``exception_postings`` and ``exception_tfs`` of ``files.Postings``."""

    postings: NDArray[np.int64]
    tfs: NDArray[np.uint16]


_WRITTEN_BY_RANGE = ("rows", "impacts", "segment_blocks", "segment_sizes", "exception_postings", "exception_tfs")


def merge(folder: Path, blocks: Path, dictionary: Dictionary, k1: float, b: float) -> dict[str, int]:
    """Write the files of ``files.Postings``, and return the counts for the manifest."""
    document_counts, segment_counts = np.zeros(len(dictionary), np.int64), np.zeros(len(dictionary), np.int64)
    lengths = []
    for n in range(count_blocks(blocks)):
        block = read_block(blocks, n)
        numbers, ends = block.terms
        document_counts[numbers] += np.diff(ends, prepend=0)
        segment_counts[numbers] += 1
        lengths.append(block.lengths)
    scoring, counts = _scoring(np.concatenate(lengths), k1, b)
    counts |= {"terms": len(dictionary), "postings": int(document_counts.sum())}
    frequent_terms = np.flatnonzero(document_counts > FREQUENT_ABOVE * len(scoring.lengths))
    frequent_term_dfs = document_counts[frequent_terms]
    document_counts[frequent_terms] = segment_counts[frequent_terms] = 0  # frequent terms have no segments
    starts, segment_starts = _starts(document_counts), _starts(segment_counts)
    tables = {
        **dictionary.table()._asdict(),
        "posting_starts": starts,
        "segment_starts": segment_starts,
        "lengths": scoring.lengths,
        "frequent_terms": frequent_terms,
        "frequent_term_dfs": frequent_term_dfs,
        "totals": np.array([counts["rows_with_terms"], counts["tokens"]], dtype=np.int64),
    }
    for name, array in tables.items():
        (folder / name).write_bytes(array.tobytes())
    positions = np.full(len(dictionary), -1, dtype=np.int64)
    positions[frequent_terms] = np.arange(len(frequent_terms))
    frequent = FrequentTerms(positions, _allocate_file(folder / "frequent_impacts", len(frequent_terms) * len(scoring.lengths)))
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in _WRITTEN_BY_RANGE]
        for first, end in _ranges(starts):
            term_range = _allocate_range(first, starts[first : end + 1], segment_starts[first : end + 1])
            exceptions = _fill_range(
                term_range, (_read_slice(blocks, n, first, end) for n in range(count_blocks(blocks))), scoring, frequent
            )
            written: list[NDArray[Any]] = [*term_range[-4:], *exceptions]
            for file, array in zip(files, written, strict=True):
                file.write(array.tobytes())
    return counts


def _scoring(lengths: NDArray[np.uint32], k1: float, b: float) -> tuple[Scoring, dict[str, int]]:
    n_rows_with_terms, n_tokens = int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64))
    inverse = inverse_norms(k1, b, mean_length(n_tokens, n_rows_with_terms))
    counts = {"rows": len(lengths), "rows_with_terms": n_rows_with_terms, "tokens": n_tokens}
    return Scoring(length_codes(lengths), inverse, term_frequencies(inverse)), counts


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


def _fill_range(term_range: TermRange, slices: Iterable[BlockSlice], scoring: Scoring, frequent: FrequentTerms) -> Exceptions:
    """Fill a range and the impacts of its frequent terms; return its exceptions in ascending order."""
    exceptions = [_append(block, term_range, scoring, frequent) for block in slices]
    postings, tfs = (np.concatenate(arrays) for arrays in zip(*exceptions, strict=True))
    order = np.argsort(postings)
    return Exceptions(postings[order], tfs[order])


@kernel
def _append(block: BlockSlice, term_range: TermRange, scoring: Scoring, frequent: FrequentTerms) -> tuple[NDArray[Any], ...]:
    """Append a block's postings to those of earlier blocks; return the arrays of the block's exceptions."""
    n_rows = len(scoring.lengths)
    exceptions, n_exceptions = Exceptions(np.empty(len(block.postings), np.int64), np.empty(len(block.postings), np.uint16)), 0
    start = 0
    for i in range(len(block.numbers)):
        term, end = block.numbers[i], block.ends[i]
        t = term - term_range.first_term
        offset = term_range.next_posting[t]
        for p in range(start, end):
            row, tf = block.postings[p] >> 16, block.postings[p] & MAX_TF
            code = scoring.lengths[block.number * BLOCK_ROWS + row]
            value = int(impact(tf, scoring.inverse[code]))
            if scoring.frequencies.lowest[code, value] != tf:
                exceptions.postings[n_exceptions] = term * n_rows + block.number * BLOCK_ROWS + row
                exceptions.tfs[n_exceptions] = tf
                n_exceptions += 1
            if frequent.positions[term] >= 0:
                frequent.impacts[frequent.positions[term] * n_rows + block.number * BLOCK_ROWS + row] = value
            else:
                term_range.rows[offset + p - start] = row
                term_range.impacts[offset + p - start] = value
        if frequent.positions[term] < 0:
            term_range.segment_blocks[term_range.next_segment[t]] = block.number
            term_range.segment_sizes[term_range.next_segment[t]] = end - start - 1
            term_range.next_segment[t] += 1
            term_range.next_posting[t] += end - start
        start = end
    return exceptions.postings[:n_exceptions].copy(), exceptions.tfs[:n_exceptions].copy()

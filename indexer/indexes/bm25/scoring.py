"""Exact scores of given rows, equal to Lucene's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.indexes.postings.cursors import Cursors, Terms, advance, look_up, start_cursors
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, Postings

from .files import Documents
from .similarity import Denominators

POSTINGS_PER_LOOKUP = 60  # postings read sequentially in the time of one lookup by bisection


class ScoringTables(NamedTuple):
    """Tables of an index: its postings, the lengths and exceptions of its rows, and the denominators of the scores."""

    postings: Postings
    documents: Documents
    denominators: Denominators


@kernel
def scores(tables: ScoringTables, terms: Terms, rows: NDArray[np.int64], positions: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the scores of rows, which must ascend. ``positions`` is working memory, (BLOCK_ROWS,), all -1 before and after."""
    postings, sums = tables.postings, np.zeros(len(rows), dtype=np.float64)
    cursors = start_cursors(postings.segment_starts, postings.posting_starts, terms.numbers)
    start = 0
    while start < len(rows):
        block, end = rows[start] // BLOCK_ROWS, start
        while end < len(rows) and rows[end] < (block + 1) * BLOCK_ROWS:
            end += 1
        advance(postings, terms, cursors, block)
        _add_block(tables, terms, cursors, rows[start:end], positions, sums[start:end])
        start = end
    row_scores = np.empty(len(rows), dtype=np.float32)
    for i in range(len(rows)):
        row_scores[i] = sums[i]
    return row_scores


@kernel
def _add_block(
    tables: ScoringTables,
    terms: Terms,
    cursors: Cursors,
    rows: NDArray[np.int64],
    positions: NDArray[np.int32],
    sums: NDArray[np.float64],
) -> None:
    """Add each term's part of the score, in order of the terms, to the sums of given rows of one block."""
    postings, n_rows = tables.postings, tables.postings.n_rows
    lengths, rows_in_block, impacts = np.empty(len(rows), np.uint8), np.empty(len(rows), np.uint16), np.empty(len(rows), np.uint8)
    for i in range(len(rows)):
        lengths[i] = tables.documents.lengths[rows[i]]
        rows_in_block[i] = rows[i] % BLOCK_ROWS
        positions[rows_in_block[i]] = i
    for t in range(len(terms.numbers)):
        start, size = cursors.positions[t], cursors.sizes[t]
        if terms.frequent[t] >= 0:
            first = terms.frequent[t] * n_rows
            _gather(postings.frequent_impacts[first : first + n_rows], rows, impacts)
        elif size == 0:
            continue
        elif len(rows) * POSTINGS_PER_LOOKUP < size:
            look_up(postings.rows[start : start + size], postings.impacts[start : start + size], rows_in_block, impacts)
        else:
            _read(postings.rows[start : start + size], postings.impacts[start : start + size], positions, impacts)
        n_shared = _add_scores(terms.weights[t], tables.denominators.values, lengths, impacts, sums)
        if n_shared > 0:
            _add_shared_scores(tables, terms, t, rows, impacts, sums)
    for i in range(len(rows)):
        positions[rows_in_block[i]] = -1


@kernel
def _gather(frequent_impacts: NDArray[np.uint8], rows: NDArray[np.int64], impacts: NDArray[np.uint8]) -> None:
    for i in range(len(rows)):
        impacts[i] = frequent_impacts[rows[i]]


@kernel
def _read(
    segment: NDArray[np.uint16], segment_impacts: NDArray[np.uint8], positions: NDArray[np.int32], impacts: NDArray[np.uint8]
) -> None:
    """Find each row's impact by reading the whole segment. A row without the term has impact 0."""
    for i in range(len(impacts)):
        impacts[i] = 0
    for p in range(len(segment)):
        i = positions[np.intp(segment[p])]
        if i >= 0:
            impacts[i] = segment_impacts[p]


@kernel
def _add_scores(
    weight: np.float32, denominators: NDArray[np.float32], lengths: NDArray[np.uint8], impacts: NDArray[np.uint8], sums: NDArray[np.float64]
) -> int:
    """Add a term's part of the score for rows whose impact determines the tf; return the number of other rows."""
    n_shared = 0
    for i in range(len(sums)):
        denominator = denominators[np.intp(lengths[i]), np.intp(impacts[i])]
        if denominator > 0:
            sums[i] += np.float64(weight - weight / denominator)
        else:
            n_shared += 1
    return n_shared


@kernel
def _add_shared_scores(
    tables: ScoringTables,
    terms: Terms,
    t: int,
    rows: NDArray[np.int64],
    impacts: NDArray[np.uint8],
    sums: NDArray[np.float64],
) -> None:
    """Add a term's part of the score for rows whose impact several tf share. The tf is the lowest, unless the row is an exception."""
    documents, denominators = tables.documents, tables.denominators
    for i in range(len(rows)):
        length = np.intp(documents.lengths[rows[i]])
        denominator = denominators.values[length, np.intp(impacts[i])]
        if denominator > 0:
            continue
        denominator = -denominator
        key = terms.numbers[t] * len(documents.lengths) + rows[i]
        p = _first_from(documents.exception_postings, key)
        if p < len(documents.exception_postings) and documents.exception_postings[p] == key:
            denominator = np.float32(1) + np.float32(documents.exception_tfs[p]) * denominators.inverse[length]
        sums[i] += np.float64(terms.weights[t] - terms.weights[t] / denominator)


@kernel
def _first_from(values: NDArray[np.int64], value: np.int64) -> int:
    """Return the position of the first of ascending values that is not below a value; numpy's bisection takes long to compile."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low

"""Exact scores of given rows, as Lucene computes them. Kernels on plain arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .bounds import Cursors, Terms, enter, first_segments
from .files import BLOCK_ROWS, Postings
from .similarity import Denominators

_POSTINGS_PER_LOOKUP = 60  # one lookup by bisection takes as long as reading this many postings sequentially


@kernel
def scores(
    postings: Postings, denominators: Denominators, terms: Terms, rows: NDArray[np.int64], places: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return the scores of rows, ascending; ``places`` is working memory, (BLOCK_ROWS), all -1 before and after."""
    sums = np.zeros(len(rows), dtype=np.float64)
    cursors = first_segments(postings.segment_starts, postings.posting_starts, terms.numbers)
    start = 0
    while start < len(rows):
        block, end = rows[start] // BLOCK_ROWS, start
        while end < len(rows) and rows[end] < (block + 1) * BLOCK_ROWS:
            end += 1
        enter(postings, terms, cursors, block)
        _add_block(postings, denominators, terms, cursors, rows[start:end], places, sums[start:end])
        start = end
    return sums.astype(np.float32)


@kernel
def _add_block(  # noqa: PLR0913
    postings: Postings,
    denominators: Denominators,
    terms: Terms,
    cursors: Cursors,
    rows: NDArray[np.int64],
    places: NDArray[np.int32],
    sums: NDArray[np.float64],
) -> None:
    """Add the parts of all terms, in their order, to the sums of given rows of one block."""
    n_rows = len(postings.lengths)
    lengths, inside, impacts = np.empty(len(rows), np.uint8), np.empty(len(rows), np.uint16), np.empty(len(rows), np.uint8)
    for i in range(len(rows)):
        lengths[i] = postings.lengths[rows[i]]
        inside[i] = rows[i] % BLOCK_ROWS
        places[inside[i]] = i
    for t in range(len(terms.numbers)):
        start, size = cursors.places[t], cursors.sizes[t]
        if terms.dense[t] >= 0:
            first = terms.dense[t] * n_rows
            _gather(postings.dense_impacts[first : first + n_rows], rows, impacts)
        elif size == 0:
            continue
        elif len(rows) * _POSTINGS_PER_LOOKUP < size:
            _look_up(postings.rows[start : start + size], postings.impacts[start : start + size], inside, impacts)
        else:
            _read(postings.rows[start : start + size], postings.impacts[start : start + size], places, impacts)
        n_shared = _add_parts(terms.weights[t], denominators.values, lengths, impacts, sums)
        if n_shared > 0:
            _add_shared(postings, denominators, terms, t, rows, impacts, sums)
    for i in range(len(rows)):
        places[inside[i]] = -1


@kernel
def _gather(dense_impacts: NDArray[np.uint8], rows: NDArray[np.int64], impacts: NDArray[np.uint8]) -> None:
    for i in range(len(rows)):
        impacts[i] = dense_impacts[rows[i]]


@kernel
def _look_up(
    segment: NDArray[np.uint16], segment_impacts: NDArray[np.uint8], inside: NDArray[np.uint16], impacts: NDArray[np.uint8]
) -> None:
    """Find each row's impact, 0 if the term is not in it, by branchless bisection, of which a CPU overlaps several."""
    for i in range(len(inside)):
        row, place, n = inside[i], np.intp(0), len(segment)
        while n > 1:
            half = n >> 1
            place = place + half if segment[place + half] <= row else place
            n -= half
        impacts[i] = segment_impacts[place] if segment[place] == row else np.uint8(0)


@kernel
def _read(segment: NDArray[np.uint16], segment_impacts: NDArray[np.uint8], places: NDArray[np.int32], impacts: NDArray[np.uint8]) -> None:
    """Find each row's impact by reading the whole segment."""
    impacts[:] = 0
    for p in range(len(segment)):
        i = places[np.intp(segment[p])]
        if i >= 0:
            impacts[i] = segment_impacts[p]


@kernel
def _add_parts(
    weight: np.float32, denominators: NDArray[np.float32], lengths: NDArray[np.uint8], impacts: NDArray[np.uint8], sums: NDArray[np.float64]
) -> int:
    """Add a term's parts where the impact determines them; return the number of other impacts."""
    n_shared = 0
    for i in range(len(sums)):
        denominator = denominators[np.intp(lengths[i]), np.intp(impacts[i])]
        if denominator > 0:
            sums[i] += np.float64(weight - weight / denominator)
        else:
            n_shared += 1
    return n_shared


@kernel
def _add_shared(  # noqa: PLR0913
    postings: Postings,
    denominators: Denominators,
    terms: Terms,
    t: int,
    rows: NDArray[np.int64],
    impacts: NDArray[np.uint8],
    sums: NDArray[np.float64],
) -> None:
    """Add a term's parts where several term frequencies share the impact: the lowest, unless the row is in the list of exceptions."""
    for i in range(len(rows)):
        length = np.intp(postings.lengths[rows[i]])
        denominator = denominators.values[length, np.intp(impacts[i])]
        if denominator > 0:
            continue
        denominator = -denominator
        key = terms.numbers[t] * len(postings.lengths) + rows[i]
        p = np.searchsorted(postings.high_postings, key)
        if p < len(postings.high_postings) and postings.high_postings[p] == key:
            denominator = np.float32(1) + np.float32(postings.high_frequencies[p]) * denominators.inverse[length]
        sums[i] += np.float64(terms.weights[t] - terms.weights[t] / denominator)

"""The search: exact, in two passes. Kernels on plain arrays; no user input comes here.

1. Filter. Every row gets an upper bound of its score in 16 bits: impacts times integer weights, added up term by term over a block of
   65,536 rows at a time. An impact is rounded up by at most 1/255 of its term's weight, so a bound is less than ``slack`` above the true
   score, and a row whose bound is more than ``slack`` below the k-th highest is not among the k best. What is left is hardly more than k
2. Score. Those rows get the exact score, from tf and length, as Lucene computes it.

Nothing depends on the batch, on other threads, or on k but for the cut. Queries of more than ``MAX_FILTERED_TERMS`` terms, for which 16
bits are too coarse, are scored exactly over all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from indexer.indexes.selection import offer_rows, sort_best

from .files import BLOCK_ROWS, Checks, Postings, is_sound
from .similarity import TermFrequencies, part

MAX_FILTERED_TERMS = 1000

_CHUNK = 64  # rows whose highest bound is looked at first
_SEARCH_BELOW = 1 / 24  # rows wanted per posting, below which each is looked up by bisection


class Terms(NamedTuple):
    """The distinct terms of one query or, one after the other, of several: number, place among the dense terms or -1, and weight."""

    numbers: NDArray[np.int64]
    dense: NDArray[np.int64]
    weights: NDArray[np.float32]


class Statistics(NamedTuple):
    """What exact scores are computed from: ``inverse_norms`` and ``term_frequencies`` of ``similarity``."""

    inverse: NDArray[np.float32]
    frequencies: TermFrequencies


class Cursors(NamedTuple):
    """For each term of a query the next segment and the posting it begins with."""

    segments: NDArray[np.int64]
    postings: NDArray[np.int64]


class Kept(NamedTuple):
    """Rows that may be among the best, ascending, and their bounds."""

    rows: NDArray[np.int64]
    bounds: NDArray[np.uint16]


class Cut(NamedTuple):
    """How many rows are wanted, and how far below the k-th highest bound a row may be and still be one of them."""

    k: int
    slack: int


class Space(NamedTuple):
    """Working memory of one thread: (BLOCK_ROWS) bounds, all 0 between uses, and places, all -1."""

    bounds: NDArray[np.uint16]
    places: NDArray[np.int32]


@njit(nogil=True, cache=True)
def answer(
    postings: Postings, statistics: Statistics, terms: Terms, space: Space, best_rows: NDArray[np.int64], best_scores: NDArray[np.float32]
) -> None:
    """Fill in the best rows of one query and their scores, both of shape (k,), given as -1 and -inf."""
    if len(terms.numbers) == 0:
        return
    n_rows = len(postings.lengths)
    filtered = len(terms.numbers) <= MAX_FILTERED_TERMS
    kept = _filter(postings, terms, len(best_rows), space.bounds) if filtered else np.empty(0, np.int64)
    cursors = _start(postings, terms)
    first = 0
    for first_row in range(0, n_rows, BLOCK_ROWS):
        if filtered:
            end = first + int(np.searchsorted(kept[first : first + BLOCK_ROWS], first_row + BLOCK_ROWS))
            rows = kept[first:end]
            first = end
        else:
            rows = np.arange(first_row, min(first_row + BLOCK_ROWS, n_rows))
        if len(rows) > 0:
            offer_rows(_score(postings, statistics, terms, cursors, rows, space.places), rows, best_scores, best_rows)
    sort_best(best_scores, best_rows)


@njit(nogil=True, cache=True)
def first_damage(postings: Postings, checks: Checks, terms: Terms) -> int:
    """Return -1 if all that a query needs is sound, otherwise the place in ``Checks`` of a damaged file."""
    n_rows = len(postings.lengths)
    for t in range(len(terms.numbers)):
        number, dense = terms.numbers[t], terms.dense[t]
        if dense >= 0 and not is_sound(postings.dense_impacts, dense * n_rows, (dense + 1) * n_rows, checks.dense_impacts):
            return 4
        start, stop = postings.segment_starts[number], postings.segment_starts[number + 1]
        if not is_sound(postings.segment_blocks, start, stop, checks.segment_blocks):
            return 0
        if not is_sound(postings.segment_sizes, start, stop, checks.segment_sizes):
            return 1
        start, stop = postings.posting_starts[number], postings.posting_starts[number + 1]
        if not is_sound(postings.rows, start, stop, checks.rows):
            return 2
        if not is_sound(postings.impacts, start, stop, checks.impacts):
            return 3
    return -1


@njit(nogil=True, cache=True)
def _start(postings: Postings, terms: Terms) -> Cursors:
    return Cursors(postings.segment_starts[terms.numbers], postings.posting_starts[terms.numbers])


@njit(nogil=True, cache=True)
def _enter(postings: Postings, cursors: Cursors, t: int, number: int, block: int) -> int:
    """Move a term's cursor to a block and return the size of its segment there; 0 if it has none."""
    while cursors.segments[t] < postings.segment_starts[number + 1]:
        segment = cursors.segments[t]
        size = int(postings.segment_sizes[segment]) + 1
        if postings.segment_blocks[segment] >= block:
            return size if postings.segment_blocks[segment] == block else 0
        cursors.postings[t] += size
        cursors.segments[t] += 1
    return 0


# ---- the filter


@njit(nogil=True, cache=True)
def _filter(postings: Postings, terms: Terms, k: int, bounds: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the rows, ascending, that may be among the k best, and all that are."""
    n_rows = len(postings.lengths)
    weights = _integer_weights(terms.weights)
    cut = Cut(k, (weights >> 8).sum() + 3 * len(weights))
    cursors = _start(postings, terms)
    sizes = np.empty(len(weights), dtype=np.int64)
    capacity = max(4096, 4 * k)
    kept, n_kept, floor = Kept(np.empty(capacity, np.int64), np.empty(capacity, np.uint16)), 0, 1
    for block in range((n_rows + BLOCK_ROWS - 1) // BLOCK_ROWS):
        first_row = block * BLOCK_ROWS
        highest = 0
        for t in range(len(weights)):
            sizes[t] = _enter(postings, cursors, t, terms.numbers[t], block)
            if sizes[t] > 0 or terms.dense[t] >= 0:
                highest += weights[t]
        if highest < floor:
            continue
        block_bounds = bounds[: min(BLOCK_ROWS, n_rows - first_row)]
        for t in range(len(weights)):
            if terms.dense[t] >= 0:
                start = terms.dense[t] * n_rows + first_row
                _add_dense(postings.dense_impacts[start : start + len(block_bounds)], weights[t], block_bounds)
            elif sizes[t] > 0:
                start, stop = cursors.postings[t], cursors.postings[t] + sizes[t]
                _add_segment(postings.rows[start:stop], postings.impacts[start:stop], weights[t], block_bounds)
        kept, n_kept, floor = _keep(block_bounds, first_row, cut, floor, kept, n_kept)
        block_bounds[:] = 0
    n_kept, floor = _tighten(kept, n_kept, cut, floor)
    return kept.rows[:n_kept]


@njit(nogil=True, cache=True)
def _integer_weights(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return weights in proportion to the given ones, rounded up.

    They add up to 65,535 at most, with one for each: so no sum of products impact * weight / 256, each rounded up, overflows 16 bits.
    """
    scale = (65535 - 2 * len(weights)) / weights.astype(np.float64).sum()
    scaled: NDArray[np.int64] = np.ceil(weights.astype(np.float64) * scale).astype(np.int64)
    return scaled


@njit(nogil=True, cache=True)
def _add_segment(rows: NDArray[np.uint16], impacts: NDArray[np.uint8], weight: int, bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded up, to the bounds of rows."""
    factor = np.uint32(weight)
    for p in range(len(rows)):
        row = np.intp(rows[p])  # a signed index, and all casts told: twice as fast
        bounds[row] = np.uint16(bounds[row] + np.uint16((np.uint32(impacts[p]) * factor + np.uint32(255)) >> np.uint32(8)))


@njit(nogil=True, cache=True)
def _add_dense(impacts: NDArray[np.uint8], weight: int, bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded up, to the bounds of all rows of a block."""
    factor = np.uint32(weight)
    for row in range(len(impacts)):
        bounds[row] = np.uint16(bounds[row] + np.uint16((np.uint32(impacts[row]) * factor + np.uint32(255)) >> np.uint32(8)))


@njit(nogil=True, cache=True)
def _keep(bounds: NDArray[np.uint16], first_row: int, cut: Cut, floor: int, kept: Kept, n_kept: int) -> tuple[Kept, int, int]:
    """Keep the rows of a block whose bounds are not below ``floor``; return what is kept then, how many, and the floor, which may rise."""
    peaks = _peaks(bounds)
    if np.count_nonzero(peaks >= floor) > cut.k:
        floor = max(floor, _kth_highest(peaks, len(peaks), cut.k) - cut.slack)
    for chunk in range(len(peaks)):
        if peaks[chunk] >= floor:
            for row in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(bounds))):
                if bounds[row] >= floor:
                    if n_kept == len(kept.rows):
                        n_kept, floor = _tighten(kept, n_kept, cut, floor)
                        if 2 * n_kept > len(kept.rows):
                            kept = _doubled(kept)
                    kept.rows[n_kept] = first_row + row
                    kept.bounds[n_kept] = bounds[row]
                    n_kept += 1
    return kept, n_kept, floor


@njit(nogil=True, cache=True)
def _peaks(bounds: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the highest bound of every chunk."""
    peaks = np.empty((len(bounds) + _CHUNK - 1) // _CHUNK, dtype=np.uint16)
    for chunk in range(len(peaks)):
        peak = np.uint16(0)
        part_ = bounds[chunk * _CHUNK : (chunk + 1) * _CHUNK]
        for i in range(len(part_)):
            peak = max(peak, part_[i])
        peaks[chunk] = peak
    return peaks


@njit(nogil=True, cache=True)
def _tighten(kept: Kept, n_kept: int, cut: Cut, floor: int) -> tuple[int, int]:
    """Raise the floor to the k-th highest bound less ``slack`` and drop what is below; return how many stay and the floor."""
    if n_kept <= cut.k:
        return n_kept, floor
    floor = max(floor, _kth_highest(kept.bounds, n_kept, cut.k) - cut.slack)
    n_staying = 0
    for i in range(n_kept):
        if kept.bounds[i] >= floor:
            kept.rows[n_staying], kept.bounds[n_staying] = kept.rows[i], kept.bounds[i]
            n_staying += 1
    return n_staying, floor


@njit(nogil=True, cache=True)
def _doubled(kept: Kept) -> Kept:
    n = len(kept.rows)
    larger = Kept(np.empty(2 * n, np.int64), np.empty(2 * n, np.uint16))
    larger.rows[:n], larger.bounds[:n] = kept.rows, kept.bounds
    return larger


@njit(nogil=True, cache=True)
def _kth_highest(values: NDArray[np.uint16], n: int, k: int) -> int:
    """Return the k-th highest of the first n values, 1 <= k <= n: by their high bytes, then by the low bytes of those that share it."""
    counts = np.zeros(256, dtype=np.int64)
    for i in range(n):
        counts[values[i] >> 8] += 1
    n_above, high = 0, 255
    while n_above + counts[high] < k:
        n_above += counts[high]
        high -= 1
    counts[:] = 0
    for i in range(n):
        if values[i] >> 8 == high:
            counts[values[i] & 255] += 1
    low = 255
    while n_above + counts[low] < k:
        n_above += counts[low]
        low -= 1
    return high << 8 | low


# ---- exact scores


@njit(nogil=True, cache=True)
def _score(  # noqa: C901 - three ways to find the same postings; a call for each costs more than the work
    postings: Postings, statistics: Statistics, terms: Terms, cursors: Cursors, rows: NDArray[np.int64], places: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return the exact scores of rows, ascending, of one block; cursors are at this block or before."""
    n_rows = len(postings.lengths)
    block = rows[0] // BLOCK_ROWS
    sums = np.zeros(len(rows), dtype=np.float64)
    for i in range(len(rows)):
        places[rows[i] % BLOCK_ROWS] = i
    for t in range(len(terms.numbers)):
        if terms.dense[t] >= 0:
            for i in range(len(rows)):
                value = postings.dense_impacts[terms.dense[t] * n_rows + rows[i]]
                if value > 0:
                    sums[i] += _part(postings, statistics, terms, t, rows[i], value)
            continue
        size = _enter(postings, cursors, t, terms.numbers[t], block)
        start = cursors.postings[t]
        block_rows = postings.rows[start : start + size]
        if len(rows) < size * _SEARCH_BELOW:
            for i, p in enumerate(np.searchsorted(block_rows, (rows % BLOCK_ROWS).astype(np.uint16))):
                if p < size and block_rows[p] == rows[i] % BLOCK_ROWS:
                    sums[i] += _part(postings, statistics, terms, t, rows[i], postings.impacts[start + p])
            continue
        for p in range(size):
            i = places[np.intp(block_rows[p])]
            if i >= 0:
                sums[i] += _part(postings, statistics, terms, t, rows[i], postings.impacts[start + p])
    for row in rows:
        places[row % BLOCK_ROWS] = -1
    return sums.astype(np.float32)


@njit(nogil=True, cache=True, inline="always")  # a call would copy all the arrays' descriptions
def _part(postings: Postings, statistics: Statistics, terms: Terms, t: int, row: int, value: int) -> np.float32:
    """Return what a term adds to a row's score, given the impact."""
    length = postings.lengths[row]
    tf = np.int64(statistics.frequencies.lowest[length, value])
    if statistics.frequencies.is_shared[length, value]:
        key = terms.numbers[t] * len(postings.lengths) + row
        p = np.searchsorted(postings.high_postings, key)
        if p < len(postings.high_postings) and postings.high_postings[p] == key:
            tf = np.int64(postings.high_frequencies[p])
    return np.float32(part(terms.weights[t], int(tf), statistics.inverse[length]))

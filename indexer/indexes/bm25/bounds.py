"""Candidate filter: rows that may be among the k best of a query, from upper bounds in 16 bits. Kernels on plain arrays.

A row's bound is the sum of its terms' impacts times integer weights, each product rounded up, computed for a block of 65,536 rows at a
time. In the bounds' unit, 255/256 of the integer weights', ``bound - slack < score <= bound``; the slack covers all rounding. So a row
whose bound is more than ``slack`` below the k-th highest is not among the k best. Hardly more than k rows remain. Frequent ("dense")
terms, which are in many rows and weigh little, are added only to rows that the other terms leave a chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .files import BLOCK_ROWS, Postings

_CHUNK = 64  # rows that share one block maximum
_GROUPS = 4096  # groups of rows in a block; their maxima give a first threshold
_FEW_CHUNKS = 1 / 4  # share of a block's chunks up to which looking up dense impacts row by row is faster than adding all


class Terms(NamedTuple):
    """Distinct terms of one or several queries, concatenated: number, place among the dense terms or -1, and weight."""

    numbers: NDArray[np.int64]
    dense: NDArray[np.int64]
    weights: NDArray[np.float32]


class Steps(NamedTuple):
    """Quantized weights of a query's terms, and the slack: the largest distance of a score below its bound."""

    weights: NDArray[np.int64]
    slack: int


class Cursors(NamedTuple):
    """For each term of a query: its next segment, the first posting of that, and its size if it is in the current block, else 0."""

    segments: NDArray[np.int64]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Candidates(NamedTuple):
    """Rows that may be among the k best, ascending, and their upper bounds."""

    rows: NDArray[np.int64]
    bounds: NDArray[np.uint16]


@kernel
def _steps(terms: Terms) -> Steps:
    """Return the quantized weights of a query, and their slack.

    Weights add up to at most 65,535 minus one for each term, so that no sum of products impact * weight / 256, each rounded up, overflows
    16 bits.
    """
    total = terms.weights.astype(np.float64).sum()
    weights = np.empty(len(terms.weights), np.int64)
    slack = 1  # for the rounding of float32
    for t in range(len(weights)):
        weights[t] = np.int64(np.ceil(np.float64(terms.weights[t]) * (65535 - 2 * len(weights)) / total))
        slack += (weights[t] >> 8) + 3  # impact, weight and product are each rounded up by less than 1
    return Steps(weights, slack)


@kernel
def first_segments(segment_starts: NDArray[np.int64], posting_starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> Cursors:
    """Return cursors at the first segments of terms."""
    return Cursors(segment_starts[numbers], posting_starts[numbers], np.zeros(len(numbers), np.int64))


@kernel
def enter(postings: Postings, terms: Terms, cursors: Cursors, block: int) -> None:
    """Move the cursors of all non-dense terms to a block; blocks come in ascending order."""
    for t in range(len(terms.numbers)):
        if terms.dense[t] >= 0:
            continue
        segment, place, size = cursors.segments[t], cursors.places[t], np.int64(0)
        end = postings.segment_starts[terms.numbers[t] + 1]
        while segment < end:
            size = np.int64(postings.segment_sizes[segment]) + 1
            if postings.segment_blocks[segment] >= block:
                break
            place += size
            segment += 1
        is_there = segment < end and postings.segment_blocks[segment] == block
        cursors.segments[t], cursors.places[t], cursors.sizes[t] = segment, place, size if is_there else 0


@kernel
def candidates(postings: Postings, terms: Terms, k: int, bounds: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return all rows that may be among the k best; ``bounds`` is working memory, (BLOCK_ROWS), all 0 before and after."""
    n_rows, steps = len(postings.lengths), _steps(terms)
    cursors = first_segments(postings.segment_starts, postings.posting_starts, terms.numbers)
    dense = np.flatnonzero(terms.dense >= 0)
    kept, n_kept, n_at_cut, floor = Candidates(np.empty(4096, np.int64), np.empty(4096, np.uint16)), 0, 0, 1
    for first_row in range(0, n_rows, BLOCK_ROWS):
        enter(postings, terms, cursors, first_row // BLOCK_ROWS)
        missing = steps.weights[dense].sum()  # the most that the dense terms, not yet added, can add to a bound
        if missing + steps.weights[cursors.sizes > 0].sum() < floor:
            continue
        block = bounds[: min(BLOCK_ROWS, n_rows - first_row)]
        for t in range(len(terms.numbers)):
            start, stop = cursors.places[t], cursors.places[t] + cursors.sizes[t]
            _add_segment(postings.rows[start:stop], postings.impacts[start:stop], steps.weights[t], block)
        peaks = _peaks(block)
        if missing > 0 and np.count_nonzero(peaks >= floor - missing) > _FEW_CHUNKS * len(peaks):
            for d in dense:
                start = terms.dense[d] * n_rows + first_row
                _add_dense(postings.dense_impacts[start : start + len(block)], steps.weights[d], block)
            peaks, missing = _peaks(block), 0
        if missing == 0:
            floor = _raised_by_block(floor, block, peaks, k, steps)
        kept, n_new = _keep(block, peaks, first_row, max(1, floor - missing), kept, n_kept)
        block[:] = 0
        if missing > 0:
            for d in dense:
                start = terms.dense[d] * n_rows
                _look_up_dense(
                    postings.dense_impacts[start : start + n_rows], steps.weights[d], kept.rows[n_kept:n_new], kept.bounds[n_kept:n_new]
                )
        n_kept = n_new
        if n_kept > max(k + k // 2, n_at_cut + n_at_cut // 2):  # rarely enough that many equal rows do not cost quadratic time
            floor = _raised(floor, kept.bounds[:n_kept], k, steps)
            n_kept = n_at_cut = _drop_below(floor, kept, n_kept)
    floor = _raised(floor, kept.bounds[:n_kept], k, steps)
    return kept.rows[: _drop_below(floor, kept, n_kept)]


@kernel
def _add_segment(rows: NDArray[np.uint16], impacts: NDArray[np.uint8], weight: int, bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded up, to the bounds of rows."""
    factor = np.uint32(weight)
    for p in range(len(rows)):
        row = np.intp(rows[p])  # a signed index and explicit casts: twice as fast
        bounds[row] = np.uint16(bounds[row] + np.uint16((np.uint32(impacts[p]) * factor + np.uint32(255)) >> np.uint32(8)))


@kernel
def _add_dense(impacts: NDArray[np.uint8], weight: int, bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded up, or 1 more, to the bounds of all rows of a block; nothing for impact 0."""
    factor = np.uint32(np.uint16(weight))
    for row in range(len(impacts)):
        product = np.uint32(np.uint32(np.uint32(impacts[row]) << np.uint32(8)) * factor) >> np.uint32(16)  # one instruction for 16 rows
        bounds[row] = np.uint16(bounds[row] + np.uint16(product) + np.uint16(impacts[row] > 0))


@kernel
def _look_up_dense(impacts: NDArray[np.uint8], weight: int, rows: NDArray[np.int64], bounds: NDArray[np.uint16]) -> None:
    """Add the same as ``_add_dense`` to the bounds of a few rows, given the impacts of all."""
    factor = np.uint32(weight)
    for i in range(len(rows)):
        impact = np.uint32(impacts[rows[i]])
        bounds[i] = np.uint16(bounds[i] + np.uint16((impact * factor) >> np.uint32(8)) + np.uint16(impact > 0))


@kernel
def _peaks(bounds: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the block maximum of every chunk."""
    peaks = np.empty((len(bounds) + _CHUNK - 1) // _CHUNK, dtype=np.uint16)
    for chunk in range(len(peaks)):
        peak = np.uint16(0)
        part = bounds[chunk * _CHUNK : (chunk + 1) * _CHUNK]
        for i in range(len(part)):
            peak = max(peak, part[i])
        peaks[chunk] = peak
    return peaks


@kernel
def _tops(bounds: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the highest bound of each group, the rows ``_GROUPS`` apart."""
    tops = np.zeros(_GROUPS, dtype=np.uint16)
    for start in range(0, len(bounds), _GROUPS):
        part = bounds[start : start + _GROUPS]
        for i in range(len(part)):
            tops[i] = max(tops[i], part[i])
    return tops


@kernel
def _keep(
    bounds: NDArray[np.uint16], peaks: NDArray[np.uint16], first_row: int, lowest: int, kept: Candidates, n_kept: int
) -> tuple[Candidates, int]:
    """Append the rows of a block with bounds of at least ``lowest`` to the kept ones; return these, and their number."""
    limit = np.uint16(lowest)
    n_at_most = n_kept + _CHUNK * np.count_nonzero(peaks >= limit)
    if n_at_most > len(kept.rows):
        larger = Candidates(np.empty(2 * n_at_most, np.int64), np.empty(2 * n_at_most, np.uint16))
        larger.rows[:n_kept], larger.bounds[:n_kept] = kept.rows[:n_kept], kept.bounds[:n_kept]
        kept = larger
    rows, values = kept.rows, kept.bounds
    for chunk in range(len(peaks)):
        if peaks[chunk] >= limit:
            for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(bounds))):
                if bounds[i] >= limit:
                    rows[n_kept], values[n_kept] = first_row + i, bounds[i]
                    n_kept += 1
    return kept, n_kept


@kernel
def _raised_by_block(floor: int, bounds: NDArray[np.uint16], peaks: NDArray[np.uint16], k: int, steps: Steps) -> int:
    """Return ``_raised`` for the bounds of a block, computed only if the block maxima allow a higher threshold."""
    if np.count_nonzero(peaks >= np.uint16(floor)) <= min(k, len(peaks) // 2):
        return floor
    raised: int = _raised(floor, peaks if k <= len(peaks) // 8 else _tops(bounds), k, steps)
    return raised


@kernel
def _raised(floor: int, bounds: NDArray[np.uint16], k: int, steps: Steps) -> int:
    """Return the threshold: the lowest possible bound of a row among the k best, given bounds of distinct rows."""
    if np.count_nonzero(bounds >= np.uint16(floor)) <= k:
        return floor
    kth: int = _kth_highest(bounds, k)
    return max(floor, kth - steps.slack)


@kernel
def _drop_below(floor: int, kept: Candidates, n_kept: int) -> np.int64:
    """Drop candidates below the threshold; return the number of the rest."""
    n = np.int64(0)
    for i in range(n_kept):
        kept.rows[n], kept.bounds[n] = kept.rows[i], kept.bounds[i]
        n += np.int64(kept.bounds[i] >= floor)
    return n


@kernel
def _kth_highest(values: NDArray[np.uint16], k: int) -> int:
    """Return the k-th highest value, 1 <= k <= len(values): by the high bytes, then by the low bytes of values that share it."""
    counts = np.zeros(256, dtype=np.int64)
    for value in values:
        counts[value >> 8] += 1
    n_above, high = 0, 255
    while n_above + counts[high] < k:
        n_above += counts[high]
        high -= 1
    counts[:] = 0
    for value in values:
        if value >> 8 == high:
            counts[value & 255] += 1
    low = 255
    while n_above + counts[low] < k:
        n_above += counts[low]
        low -= 1
    return high << 8 | low

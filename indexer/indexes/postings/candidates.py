"""Candidates, the rows that may be among a query's k best, and the threshold that their upper bounds must reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.base.machine.chunks import CHUNK, clear, keep, lowest_bit, reach
from wikidx.indexer.scope import Words

_GROUPS = 4096  # groups of rows in a block, whose maxima raise the threshold if k is large


class Candidates(NamedTuple):
    """Rows that may be among the k best, ascending, and their upper bounds."""

    rows: NDArray[np.int64]
    upper_bounds: NDArray[np.uint16]


@kernel
def make_room(n: int) -> Candidates:
    """Return arrays for ``n`` candidates."""
    return Candidates(np.empty(n, np.int64), np.empty(n, np.uint16))


@kernel
def view(candidates: Candidates, start: int, stop: int) -> Candidates:
    """Return the candidates from position ``start`` to before ``stop``, without a copy."""
    return Candidates(candidates.rows[start:stop], candidates.upper_bounds[start:stop])


@kernel
def count_chunks(upper_bounds: NDArray[np.uint16], n_rows: int, lowest: int, words: Words) -> int:
    """Return the number of chunks of the first ``n_rows`` rows with a bound of at least ``lowest`` in the block's scope."""
    limit, n = np.uint16(max(0, lowest)), 0
    for start in range(0, n_rows, CHUNK):
        n += 1 if _within(reach(upper_bounds, start, limit), words, start) else 0
    return n


@kernel
def _within(reached: np.uint64, words: Words, start: int) -> np.uint64:
    """Return the rows of a chunk that are in the block's scope, all if ``words`` is empty."""
    return reached & words[start // CHUNK] if len(words) > 0 else reached


@kernel
def clear_outside(upper_bounds: NDArray[np.uint16], words: Words) -> None:
    """Set the bounds of rows outside of the block's scope to 0."""
    for chunk in range(len(words)):
        keep(upper_bounds, chunk * CHUNK, words[chunk])


@kernel
def take(  # noqa: PLR0913
    upper_bounds: NDArray[np.uint16],
    n_rows: int,
    first_row: int,
    lowest: int,
    words: Words,
    candidates: Candidates,
    n_candidates: int,
) -> tuple[Candidates, int]:
    """Append those of the first ``n_rows`` rows in the block's scope with bounds of at least ``lowest`` to the candidates.

    All bounds are cleared.

    Returns:
        The candidates and their number.
    """
    row, n_candidates = _take_from(upper_bounds, 0, n_rows, first_row, lowest, words, candidates, n_candidates)
    while row < n_rows:
        candidates = _enlarge(candidates, n_candidates)
        row, n_candidates = _take_from(upper_bounds, row, n_rows, first_row, lowest, words, candidates, n_candidates)
    return candidates, n_candidates


@kernel
def _take_from(  # noqa: PLR0913
    upper_bounds: NDArray[np.uint16],
    start: int,
    n_rows: int,
    first_row: int,
    lowest: int,
    words: Words,
    candidates: Candidates,
    n_candidates: int,
) -> tuple[int, int]:
    """Do as ``take``, from row ``start`` on, while there is room; return the row that comes next, and the number of candidates."""
    limit, rows, bounds, room = np.uint16(lowest), candidates.rows, candidates.upper_bounds, len(candidates.rows) - CHUNK
    while start < n_rows and n_candidates <= room:
        reached = _within(reach(upper_bounds, start, limit), words, start)
        while reached != 0:
            row = start + lowest_bit(reached)
            rows[n_candidates], bounds[n_candidates] = first_row + row, upper_bounds[row]
            n_candidates += 1
            reached &= reached - np.uint64(1)
        clear(upper_bounds, start)
        start += CHUNK
    return start, n_candidates


@kernel
def _enlarge(candidates: Candidates, n_candidates: int) -> Candidates:
    """Return candidates with room for twice as many; the first ``n_candidates`` are kept."""
    larger: Candidates = make_room(2 * len(candidates.rows))
    for i in range(n_candidates):
        larger.rows[i], larger.upper_bounds[i] = candidates.rows[i], candidates.upper_bounds[i]
    return larger


@kernel
def drop_below(threshold: int, candidates: Candidates, n_candidates: int) -> np.int64:
    """Drop candidates below the threshold; return the number of those left."""
    n = np.int64(0)
    for i in range(n_candidates):
        candidates.rows[n], candidates.upper_bounds[n] = candidates.rows[i], candidates.upper_bounds[i]
        n += np.int64(candidates.upper_bounds[i] >= threshold)
    return n


@kernel
def raise_threshold_by_block(threshold: int, upper_bounds: NDArray[np.uint16], k: int, slack: int) -> int:
    """Return the threshold, raised by the maxima of distinct rows of a block if these allow this."""
    has_few_chunks = k > len(upper_bounds) // CHUNK // 8
    maxima = _group_maxima(upper_bounds) if has_few_chunks else _block_maxima(upper_bounds)
    new_threshold: int = raise_threshold(threshold, maxima, k, slack)
    return new_threshold


@kernel
def _block_maxima(upper_bounds: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the block maximum of every chunk."""
    maxima = np.empty((len(upper_bounds) + CHUNK - 1) // CHUNK, dtype=np.uint16)
    for chunk in range(len(maxima)):
        maximum = np.uint16(0)
        part = upper_bounds[chunk * CHUNK : (chunk + 1) * CHUNK]
        for i in range(len(part)):
            maximum = max(maximum, part[i])
        maxima[chunk] = maximum
    return maxima


@kernel
def _group_maxima(upper_bounds: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the highest bound of each group. The rows of a group are ``_GROUPS`` apart."""
    maxima = np.zeros(_GROUPS, dtype=np.uint16)
    for start in range(0, len(upper_bounds), _GROUPS):
        part = upper_bounds[start : start + _GROUPS]
        for i in range(len(part)):
            maxima[i] = max(maxima[i], part[i])
    return maxima


@kernel
def raise_threshold(threshold: int, upper_bounds: NDArray[np.uint16], k: int, slack: int) -> int:
    """Return the threshold, raised if the bounds of some distinct rows allow this. A row among the k best has at least this bound."""
    lowest, n = np.uint16(threshold), 0
    for bound in upper_bounds:
        n += bound >= lowest
    if n <= k:
        return threshold
    kth: int = _kth_highest(upper_bounds, k)
    return max(threshold, kth - slack)


@kernel
def _kth_highest(values: NDArray[np.uint16], k: int) -> int:
    """Return the k-th highest value, 1 <= k <= len(values), by counting high bytes, then low bytes of values with the k-th high byte."""
    counts = np.zeros(256, dtype=np.int64)
    for value in values:
        counts[value >> 8] += 1
    n_above, high = 0, 255
    while n_above + counts[high] < k:
        n_above += counts[high]
        high -= 1
    counts = np.zeros(256, dtype=np.int64)
    for value in values:
        if value >> 8 == high:
            counts[value & 255] += 1
    low = 255
    while n_above + counts[low] < k:
        n_above += counts[low]
        low -= 1
    return high << 8 | low

"""Selection of candidates, the rows that may be among a query's k best, by 16-bit upper bounds of their scores.

A query term adds impact * quantized weight / 256, rounded up, to a row's upper bound. Bounds are computed for one block of 65,536 rows at
a time. On the scale of the bounds, ``bound - slack < score <= bound``; the slack covers all rounding. A row whose bound is more than
``slack`` below the k-th highest bound is therefore not among the k best. Few more than k rows remain. Frequent terms are in many rows and
have low weights; where possible, they are added only to rows that can still be candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.machine.compiled import kernel
from wikidx.indexer.machine.chunks import CHUNK, clear, lowest_bit, reach

from .files import BLOCK_ROWS, Postings

_SAMPLED_FROM = 16  # number of blocks from which a sample of them saves time
_SAMPLED_K = 64  # k from which it does
_NEW_CANDIDATES = 16  # least number of new candidates for which the threshold is raised
_GROUPS = 4096  # groups of rows in a block, whose maxima raise the threshold if k is large
_FEW_CHUNKS = 1 / 2  # share of a block's chunks below which looking up frequent impacts of single rows is faster than adding them to all


class Terms(NamedTuple):
    """Distinct terms of one or several queries, concatenated: numbers, positions among the frequent terms (or -1), and weights."""

    numbers: NDArray[np.int64]
    frequent: NDArray[np.int64]
    weights: NDArray[np.float32]


class QuantizedWeights(NamedTuple):
    """Quantized weights of a query's terms, and the slack: a bound exceeds its row's score by less than this."""

    weights: NDArray[np.int64]
    slack: int


class Cursors(NamedTuple):
    """Positions in the postings of each query term.

    Attributes:
        segments: the first segment in the current block or a later block.
        positions: the first posting of this segment.
        sizes: number of postings of this segment if it is in the current block, else 0.
    """

    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]


class Candidates(NamedTuple):
    """Rows that may be among the k best, ascending, and their upper bounds."""

    rows: NDArray[np.int64]
    upper_bounds: NDArray[np.uint16]


@kernel
def _quantize_weights(terms: Terms) -> QuantizedWeights:
    """Return the quantized weights of a query, and the slack.

    The sum of n weights is at most 65,535 - n. A row's bound, a sum of up to n products that are rounded up, therefore fits into 16 bits.
    """
    total = terms.weights.astype(np.float64).sum()
    weights = np.empty(len(terms.weights), np.int64)
    slack = 1  # for the rounding of float32
    for t in range(len(weights)):
        weights[t] = np.int64(np.ceil(np.float64(terms.weights[t]) * (65535 - 2 * len(weights)) / total))
        slack += (weights[t] >> 8) + 3  # impact, weight and product are each rounded up by less than 1
    return QuantizedWeights(weights, slack)


@kernel
def start_cursors(segment_starts: NDArray[np.int64], posting_starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> Cursors:
    """Return cursors at the first segment of each term."""
    return Cursors(segment_starts[numbers], posting_starts[numbers], np.zeros(len(numbers), np.int64))


@kernel
def advance(postings: Postings, terms: Terms, cursors: Cursors, block: int) -> None:
    """Move the cursors of all terms with segments to a block. Blocks must come in ascending order."""
    for t in range(len(terms.numbers)):
        if terms.frequent[t] >= 0:
            continue
        segment, position, size = cursors.segments[t], cursors.positions[t], np.int64(0)
        end = postings.segment_starts[terms.numbers[t] + 1]
        while segment < end:
            size = np.int64(postings.segment_sizes[segment]) + 1
            if postings.segment_blocks[segment] >= block:
                break
            position += size
            segment += 1
        is_in_block = segment < end and postings.segment_blocks[segment] == block
        cursors.segments[t], cursors.positions[t], cursors.sizes[t] = segment, position, size if is_in_block else 0


@kernel
def select_candidates(postings: Postings, terms: Terms, k: int, upper_bounds: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return all rows that may be among the k best. ``upper_bounds`` is working memory, (BLOCK_ROWS,), all 0 before and after.

    In a large corpus, a sample of its blocks gives a first guess of the threshold. If it was too high, which the candidates show, the
    search is repeated without it.
    """
    quantized, n_blocks, guess = _quantize_weights(terms), -(-len(postings.lengths) // BLOCK_ROWS), 1
    step = max(_SAMPLED_FROM // 2, n_blocks // _SAMPLED_FROM)
    if k >= _SAMPLED_K and n_blocks >= _SAMPLED_FROM:
        expected = k / step  # of the k best, in the sample
        _, guess = _scan(postings, terms, quantized, int(expected + 3 * np.sqrt(expected) + 3), step, 1, upper_bounds)
    candidates, threshold = _scan(postings, terms, quantized, k, 1, guess, upper_bounds)
    if threshold < guess:
        candidates, threshold = _scan(postings, terms, quantized, k, 1, 1, upper_bounds)
    rows: NDArray[np.int64] = candidates.rows
    return rows


@kernel
def _scan(  # noqa: PLR0913
    postings: Postings, terms: Terms, quantized: QuantizedWeights, k: int, step: int, guess: int, upper_bounds: NDArray[np.uint16]
) -> tuple[Candidates, int]:
    """Return the candidates of every ``step``-th block whose bounds are at least ``guess``, and the threshold that they give."""
    n_rows, cursors = len(postings.lengths), start_cursors(postings.segment_starts, postings.posting_starts, terms.numbers)
    frequent = np.flatnonzero(terms.frequent >= 0)
    candidates = Candidates(np.empty(4096, np.int64), np.empty(4096, np.uint16))
    n_candidates, n_at_last_cut, n_new, threshold = 0, 0, 0, guess
    for first_row in range(0, n_rows, step * BLOCK_ROWS):
        advance(postings, terms, cursors, first_row // BLOCK_ROWS)
        pending = quantized.weights[frequent].sum()  # maximum that the frequent terms can still add to a bound
        if pending + quantized.weights[cursors.sizes > 0].sum() < threshold:
            continue
        block = upper_bounds[: min(BLOCK_ROWS, n_rows - first_row)]
        for t in range(len(terms.numbers)):
            start, stop = cursors.positions[t], cursors.positions[t] + cursors.sizes[t]
            _add_segment(postings.rows[start:stop], postings.impacts[start:stop], quantized.weights[t], block)
        if pending > 0 and _count_chunks(upper_bounds, len(block), threshold - pending) > _FEW_CHUNKS * len(block) / CHUNK:
            for i in frequent:
                start = terms.frequent[i] * n_rows + first_row
                _add_frequent(postings.frequent_impacts[start : start + len(block)], quantized.weights[i], block)
            pending = 0
        if pending == 0 and (threshold == 1 or n_new > k):
            threshold = _raise_threshold_by_block(threshold, block, k, quantized)
        n_before = n_candidates
        candidates, n_candidates = _take(upper_bounds, len(block), first_row, max(1, threshold - pending), candidates, n_candidates)
        n_new = n_candidates - n_before
        if pending > 0:
            for i in frequent:
                start = terms.frequent[i] * n_rows
                _look_up_frequent(
                    postings.frequent_impacts[start : start + n_rows],
                    quantized.weights[i],
                    candidates.rows[n_before:n_candidates],
                    candidates.upper_bounds[n_before:n_candidates],
                )
        if n_candidates > max(k + max(k // 4, _NEW_CANDIDATES), n_at_last_cut + n_at_last_cut // 4):
            threshold = _raise_threshold(threshold, candidates.upper_bounds[:n_candidates], k, quantized)
            n_candidates = n_at_last_cut = _drop_below(threshold, candidates, n_candidates)
    natural = _raise_threshold(1, candidates.upper_bounds[:n_candidates], k, quantized)
    n_candidates = _drop_below(max(threshold, natural), candidates, n_candidates)
    return Candidates(candidates.rows[:n_candidates], candidates.upper_bounds[:n_candidates]), natural


@kernel
def _add_segment(rows: NDArray[np.uint16], impacts: NDArray[np.uint8], weight: int, upper_bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded up, to the bounds of rows."""
    factor = np.uint32(weight)
    for p in range(len(rows)):
        row = np.intp(rows[p])  # signed indices and explicit casts are twice as fast
        upper_bounds[row] = np.uint16(upper_bounds[row] + np.uint16((np.uint32(impacts[p]) * factor + np.uint32(255)) >> np.uint32(8)))


@kernel
def _add_frequent(impacts: NDArray[np.uint8], weight: int, upper_bounds: NDArray[np.uint16]) -> None:
    """Add impact * weight / 256, rounded down, plus 1, to the bounds of all rows of a block; add nothing for impact 0."""
    factor = np.uint32(np.uint16(weight))
    for row in range(len(impacts)):
        product = np.uint32(np.uint32(np.uint32(impacts[row]) << np.uint32(8)) * factor) >> np.uint32(16)  # one instruction for 16 rows
        upper_bounds[row] = np.uint16(upper_bounds[row] + np.uint16(product) + np.uint16(impacts[row] > 0))


@kernel
def _look_up_frequent(impacts: NDArray[np.uint8], weight: int, rows: NDArray[np.int64], upper_bounds: NDArray[np.uint16]) -> None:
    """Add the same values as ``_add_frequent``, to the bounds of a few rows. ``impacts`` has the impacts of all rows of the corpus."""
    factor = np.uint32(weight)
    for i in range(len(rows)):
        impact = np.uint32(impacts[rows[i]])
        upper_bounds[i] = np.uint16(upper_bounds[i] + np.uint16((impact * factor) >> np.uint32(8)) + np.uint16(impact > 0))


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
def _count_chunks(upper_bounds: NDArray[np.uint16], n_rows: int, lowest: int) -> int:
    """Return the number of chunks of the first ``n_rows`` rows with a bound of at least ``lowest``."""
    limit, n = np.uint16(max(0, lowest)), 0
    for start in range(0, n_rows, CHUNK):
        n += 1 if reach(upper_bounds, start, limit) else 0
    return n


@kernel
def _take(
    upper_bounds: NDArray[np.uint16], n_rows: int, first_row: int, lowest: int, candidates: Candidates, n_candidates: int
) -> tuple[Candidates, int]:
    """Append the first ``n_rows`` rows whose bounds are at least ``lowest`` to the candidates, and clear all bounds.

    Returns:
        The candidates and their number.
    """
    row, n_candidates = _take_from(upper_bounds, 0, n_rows, first_row, lowest, candidates, n_candidates)
    while row < n_rows:
        candidates = _enlarge(candidates, n_candidates)
        row, n_candidates = _take_from(upper_bounds, row, n_rows, first_row, lowest, candidates, n_candidates)
    return candidates, n_candidates


@kernel
def _take_from(  # noqa: PLR0913
    upper_bounds: NDArray[np.uint16],
    start: int,
    n_rows: int,
    first_row: int,
    lowest: int,
    candidates: Candidates,
    n_candidates: int,
) -> tuple[int, int]:
    """Do as ``_take``, from row ``start`` on, while there is room; return the row that comes next, and the number of candidates."""
    limit, rows, bounds, room = np.uint16(lowest), candidates.rows, candidates.upper_bounds, len(candidates.rows) - CHUNK
    while start < n_rows and n_candidates <= room:
        reached = reach(upper_bounds, start, limit)
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
    n = 2 * len(candidates.rows)
    larger = Candidates(np.empty(n, np.int64), np.empty(n, np.uint16))
    larger.rows[:n_candidates], larger.upper_bounds[:n_candidates] = (
        candidates.rows[:n_candidates],
        candidates.upper_bounds[:n_candidates],
    )
    return larger


@kernel
def _raise_threshold_by_block(threshold: int, upper_bounds: NDArray[np.uint16], k: int, quantized: QuantizedWeights) -> int:
    """Return the threshold, raised by the maxima of distinct rows of a block if these allow this."""
    has_few_chunks = k > len(upper_bounds) // CHUNK // 8
    maxima = _group_maxima(upper_bounds) if has_few_chunks else _block_maxima(upper_bounds)
    new_threshold: int = _raise_threshold(threshold, maxima, k, quantized)
    return new_threshold


@kernel
def _raise_threshold(threshold: int, upper_bounds: NDArray[np.uint16], k: int, quantized: QuantizedWeights) -> int:
    """Return the threshold, raised if the bounds of some distinct rows allow this. A row among the k best has at least this bound."""
    if np.count_nonzero(upper_bounds >= np.uint16(threshold)) <= k:
        return threshold
    kth: int = _kth_highest(upper_bounds, k)
    return max(threshold, kth - quantized.slack)


@kernel
def _drop_below(threshold: int, candidates: Candidates, n_candidates: int) -> np.int64:
    """Drop candidates below the threshold; return the number of those left."""
    n = np.int64(0)
    for i in range(n_candidates):
        candidates.rows[n], candidates.upper_bounds[n] = candidates.rows[i], candidates.upper_bounds[i]
        n += np.int64(candidates.upper_bounds[i] >= threshold)
    return n


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
    counts[:] = 0
    for value in values:
        if value >> 8 == high:
            counts[value & 255] += 1
    low = 255
    while n_above + counts[low] < k:
        n_above += counts[low]
        low -= 1
    return high << 8 | low

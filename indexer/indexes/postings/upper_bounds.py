"""Upper bounds of scores, in 16 bits: a query term adds impact * quantized weight / 256, rounded up, to a row's upper bound.

Bounds are computed for one block of rows at a time. On the scale of the bounds, ``bound - slack < score <= bound``; the slack covers all
rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel

from .candidates import Candidates
from .cursors import Cursors, Terms, look_up, start_cursors
from .files import BLOCK_ROWS, Postings


class Query(NamedTuple):
    """A query's terms in one pass over the blocks.

    Attributes:
        postings: those of the index.
        cursors: those of the terms.
        weights: quantized weights of the terms.
        slack: a bound exceeds its row's score by less than this.
        frequent_starts: start of each frequent term's impacts in ``postings.frequent_impacts``; meaningless for other terms.
        frequent: positions of the frequent terms.
        rarer: positions of all other terms by ascending weight, so that those of most rows come first.
    """

    postings: Postings
    cursors: Cursors
    weights: NDArray[np.int64]
    slack: int
    frequent_starts: NDArray[np.int64]
    frequent: NDArray[np.int64]
    rarer: NDArray[np.int64]


@kernel
def start_query(postings: Postings, terms: Terms) -> Query:
    """Return a query before the first block.

    The sum of n weights is at most 65,535 - n. A row's bound, a sum of up to n products that are rounded up, therefore fits into 16 bits.
    """
    n, total = len(terms.weights), 0.0
    for weight in terms.weights:
        total += np.float64(weight)
    weights, starts = np.empty(n, np.int64), np.empty(n, np.int64)
    slack = 1  # for the rounding of float32
    for t in range(n):
        weights[t] = np.int64(np.ceil(np.float64(terms.weights[t]) * (65535 - 2 * n) / total))
        slack += (weights[t] >> 8) + 3  # impact, weight and product are each rounded up by less than 1
        starts[t] = terms.frequent[t] * postings.n_rows
    cursors = start_cursors(postings.segment_starts, postings.posting_starts, terms.numbers)
    frequent, rarer = _by_weight(weights, terms.frequent, True), _by_weight(weights, terms.frequent, False)
    return Query(postings, cursors, weights, slack, starts, frequent, rarer)


@kernel
def _by_weight(weights: NDArray[np.int64], frequent: NDArray[np.int64], is_frequent: bool) -> NDArray[np.int64]:  # noqa: FBT001
    """Return the positions of the terms that are frequent or not, by ascending weight; few terms are sorted fast by insertion."""
    order, n = np.empty(len(weights), np.int64), 0
    for t in range(len(weights)):
        if (frequent[t] >= 0) != is_frequent:
            continue
        i = n
        while i > 0 and weights[order[i - 1]] > weights[t]:
            order[i] = order[i - 1]
            i -= 1
        order[i] = t
        n += 1
    return order[:n]


@kernel
def add_term(query: Query, t: int, upper_bounds: NDArray[np.uint16]) -> None:
    """Add a term that is not frequent to the bounds of all rows of a block."""
    start, stop = query.cursors.positions[t], query.cursors.positions[t] + query.cursors.sizes[t]
    rows, impacts, factor = query.postings.rows[start:stop], query.postings.impacts[start:stop], np.uint32(query.weights[t])
    for p in range(len(rows)):
        row = np.intp(rows[p])  # signed indices and explicit casts are twice as fast
        upper_bounds[row] = np.uint16(upper_bounds[row] + np.uint16((np.uint32(impacts[p]) * factor + np.uint32(255)) >> np.uint32(8)))


@kernel
def look_up_term(query: Query, t: int, candidates: Candidates) -> None:
    """Add what ``add_term`` adds, to the bounds of a few rows of the block."""
    start, stop, factor = query.cursors.positions[t], query.cursors.positions[t] + query.cursors.sizes[t], np.uint32(query.weights[t])
    rows, impacts = np.empty(len(candidates.rows), np.uint16), np.empty(len(candidates.rows), np.uint8)
    for i in range(len(rows)):
        rows[i] = candidates.rows[i] % BLOCK_ROWS
    look_up(query.postings.rows[start:stop], query.postings.impacts[start:stop], rows, impacts)
    for i in range(len(impacts)):
        added = np.uint16((np.uint32(impacts[i]) * factor + np.uint32(255)) >> np.uint32(8))
        candidates.upper_bounds[i] = np.uint16(candidates.upper_bounds[i] + added)


@kernel
def add_frequent_term(query: Query, t: int, first_row: int, upper_bounds: NDArray[np.uint16]) -> None:
    """Add a frequent term to the bounds of all rows of a block: impact * weight / 256, rounded down, plus 1; nothing for impact 0."""
    start, factor = query.frequent_starts[t] + first_row, np.uint32(np.uint16(query.weights[t]))
    impacts = query.postings.frequent_impacts[start : start + len(upper_bounds)]
    for row in range(len(impacts)):
        product = np.uint32(np.uint32(np.uint32(impacts[row]) << np.uint32(8)) * factor) >> np.uint32(16)  # one instruction for 16 rows
        upper_bounds[row] = np.uint16(upper_bounds[row] + np.uint16(product) + np.uint16(impacts[row] > 0))


@kernel
def look_up_frequent_term(query: Query, t: int, candidates: Candidates) -> None:
    """Add what ``add_frequent_term`` adds, to the bounds of a few rows."""
    start, factor = query.frequent_starts[t], np.uint32(query.weights[t])
    impacts = query.postings.frequent_impacts[start : start + query.postings.n_rows]
    for i in range(len(candidates.rows)):
        impact = np.uint32(impacts[candidates.rows[i]])
        added = np.uint16((impact * factor) >> np.uint32(8)) + np.uint16(impact > 0)
        candidates.upper_bounds[i] = np.uint16(candidates.upper_bounds[i] + added)

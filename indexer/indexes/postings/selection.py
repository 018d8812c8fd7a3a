"""Selection of candidates, the rows that may be among a query's k best, by upper bounds of their scores.

A row whose bound is more than ``slack`` below the k-th highest bound is not among the k best. Few more than k rows remain.

Common terms have many postings and low weights. Where it saves time, they are not added to the bounds of all rows, but looked up for those
that can still reach the threshold, whose bounds without these terms are at most the terms' weights below it, as in MaxScore (Turtle and
Flood, 1995). The threshold rises, and blocks differ: a search decides again and again how many terms it looks up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.base.machine.chunks import CHUNK
from wikidx.indexer.scope import Words

from .candidates import (
    Candidates,
    clear_outside,
    count_chunks,
    drop_below,
    make_room,
    raise_threshold,
    raise_threshold_by_block,
    take,
    view,
)
from .cursors import Terms, advance
from .files import BLOCK_ROWS, Postings
from .upper_bounds import Query, add_frequent_term, add_term, look_up_frequent_term, look_up_term, start_query

_SAMPLED_FROM = 16  # number of blocks from which a sample of them saves time
_SAMPLED_K = 64  # k from which it does
_FIRST_ROOM = 4096  # number of candidates for which there is room at first
_NEW_CANDIDATES = 16  # least number of new candidates for which the threshold is raised
_FEW_CHUNKS = 1 / 2  # share of a block's chunks below which looking up frequent impacts of single rows is faster than adding them to all
_POSTINGS_PER_LOOKUP = 80  # postings added sequentially in the time of one lookup by bisection
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 32  # number of blocks until one more term is tried


class Lookups(NamedTuple):
    """The terms that are looked up, besides the frequent ones: the first ``n_terms`` of ``Query.rarer``.

    Attributes:
        n_terms: their number.
        n_blocks: number of blocks until one more is tried.
        pause: number of blocks between the last trial and the next one.
    """

    n_terms: int
    n_blocks: int
    pause: int


@kernel
def select_candidates(postings: Postings, terms: Terms, k: int, scope: Words, upper_bounds: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return all rows that may be among the k best of a scope; an empty one is of all rows.

    ``upper_bounds`` is working memory, (BLOCK_ROWS,), all 0 before and after.
    In a large corpus, a sample of its blocks gives a first guess of the threshold. If it was too high, which the candidates show, the
    search is repeated without it.
    """
    n_blocks, guess = -(-postings.n_rows // BLOCK_ROWS), 1
    step = max(_SAMPLED_FROM // 2, n_blocks // _SAMPLED_FROM)
    if k >= _SAMPLED_K and n_blocks >= _SAMPLED_FROM:
        expected = k / step  # of the k best, in the sample
        _, guess = _scan(postings, terms, int(expected + 3 * np.sqrt(expected) + 3), step, 1, scope, upper_bounds)
    candidates, threshold = _scan(postings, terms, k, 1, guess, scope, upper_bounds)
    if threshold < guess:
        candidates, threshold = _scan(postings, terms, k, 1, 1, scope, upper_bounds)
    rows: NDArray[np.int64] = candidates.rows
    return rows


@kernel
def _scan(  # noqa: PLR0913
    postings: Postings, terms: Terms, k: int, step: int, guess: int, scope: Words, upper_bounds: NDArray[np.uint16]
) -> tuple[Candidates, int]:
    """Return the candidates of every ``step``-th block whose bounds are at least ``guess``, and the threshold that they give."""
    n_rows, query, candidates = postings.n_rows, start_query(postings, terms), make_room(_FIRST_ROOM)
    lookups, of_frequent = Lookups(0, _FIRST_PAUSE, _FIRST_PAUSE), _total(query.frequent, query.weights)
    n_candidates, n_at_last_cut, n_new, threshold = 0, 0, 0, guess
    for first_row in range(0, n_rows, step * BLOCK_ROWS):
        words = scope[first_row // CHUNK : (first_row + BLOCK_ROWS) // CHUNK]
        if len(words) > 0 and not _has_any(words):
            continue
        advance(postings, terms, query.cursors, first_row // BLOCK_ROWS)
        maxima = _most_added(query)
        if of_frequent + _total(query.rarer, maxima) < threshold:
            continue
        n_block_rows = min(BLOCK_ROWS, n_rows - first_row)
        lookups, pending = _add_terms(query, maxima, lookups, threshold, of_frequent, n_block_rows, words, upper_bounds)
        if lookups.n_terms == 0 and pending > 0:
            if (
                pending >= threshold
                or count_chunks(upper_bounds, n_block_rows, threshold - pending, words) > _FEW_CHUNKS * n_block_rows / CHUNK
            ):
                for t in query.frequent:
                    add_frequent_term(query, t, first_row, upper_bounds[:n_block_rows])
                pending = 0
        if pending == 0 and (threshold == 1 or n_new > k):
            clear_outside(upper_bounds, words)
            threshold = raise_threshold_by_block(threshold, upper_bounds[:n_block_rows], k, query.slack)
        n_before = n_candidates
        lowest = max(1, threshold - pending)
        candidates, n_candidates = take(upper_bounds, n_block_rows, first_row, lowest, words, candidates, n_candidates)
        n_new = n_candidates - n_before
        if pending > 0:
            lookups, n_left = _look_up_terms(query, maxima, lookups, threshold, pending, view(candidates, n_before, n_candidates))
            n_candidates = n_before + n_left
        if n_candidates > max(k + max(k // 4, _NEW_CANDIDATES), n_at_last_cut + n_at_last_cut // 4):
            threshold = raise_threshold(threshold, candidates.upper_bounds[:n_candidates], k, query.slack)
            n_candidates = n_at_last_cut = drop_below(threshold, candidates, n_candidates)
    natural = raise_threshold(1, candidates.upper_bounds[:n_candidates], k, query.slack)
    n_candidates = drop_below(max(threshold, natural), candidates, n_candidates)
    return view(candidates, 0, n_candidates), natural


@kernel
def _most_added(query: Query) -> NDArray[np.int64]:
    """Return the most that each term that is not frequent can add to a bound of the current block."""
    maxima = np.zeros(len(query.weights), np.int64)
    for t in query.rarer:
        maxima[t] = query.weights[t] if query.cursors.sizes[t] > 0 else 0
    return maxima


@kernel
def _total(positions: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    total = 0
    for t in positions:
        total += values[t]
    return total


@kernel
def _has_any(words: Words) -> bool:
    for word in words:
        if word != 0:
            return True
    return False


@kernel
def _add_terms(  # noqa: PLR0913
    query: Query,
    maxima: NDArray[np.int64],
    lookups: Lookups,
    threshold: int,
    of_frequent: int,
    n_rows: int,
    words: Words,
    upper_bounds: NDArray[np.uint16],
) -> tuple[Lookups, int]:
    """Add the terms that are neither frequent nor looked up to a block's bounds.

    ``maxima`` are the most that each of the rarer terms can add to a bound of this block, ``of_frequent`` the most that all frequent terms
    can. In a trial, one more term is left out at first; then terms are added as long as looking them up would take longer.

    Returns:
        The terms to look up, and the most that they and the frequent terms can still add to a bound.
    """
    n, pending, is_trial = 0, of_frequent, lookups.n_blocks == 0
    while n < min(lookups.n_terms + is_trial, len(query.rarer)) and pending + maxima[query.rarer[n]] < threshold:
        pending += int(maxima[query.rarer[n]])
        n += 1
    for t in query.rarer[n:]:
        add_term(query, t, upper_bounds)
    if not is_trial:
        return Lookups(n, lookups.n_blocks - 1, lookups.pause), pending
    while n > 0:
        t = query.rarer[n - 1]
        n_lookups = n * count_chunks(upper_bounds, n_rows, threshold - pending, words)  # at least
        if n_lookups * _POSTINGS_PER_LOOKUP <= query.cursors.sizes[t]:
            break
        add_term(query, t, upper_bounds)
        n -= 1
        pending -= int(maxima[t])
    pause = 1 if n > lookups.n_terms else min(2 * lookups.pause, _LONGEST_PAUSE)
    return Lookups(n, pause - 1, pause), pending


@kernel
def _look_up_terms(  # noqa: PLR0913
    query: Query, maxima: NDArray[np.int64], lookups: Lookups, threshold: int, pending: int, candidates: Candidates
) -> tuple[Lookups, int]:
    """Look up terms for a block's candidates; drop those that cannot reach the threshold. See ``_add_terms``.

    Returns:
        The terms to look up in the next block, fewer if this took too long, and the number of candidates that are left.
    """
    sizes, n, n_left = query.cursors.sizes, lookups.n_terms, len(candidates.rows)
    if n > 0 and n * n_left * _POSTINGS_PER_LOOKUP > 2 * sizes[query.rarer[n - 1]]:
        lookups = Lookups(n - 1, lookups.n_blocks, lookups.pause)
    for i in range(n - 1, -1, -1):
        t = query.rarer[i]
        if sizes[t] > 0:
            look_up_term(query, t, view(candidates, 0, n_left))
            pending -= int(maxima[t])
            n_left = drop_below(threshold - pending, candidates, n_left)
    for t in query.frequent:
        look_up_frequent_term(query, t, view(candidates, 0, n_left))
    return lookups, n_left

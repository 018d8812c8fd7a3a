"""Exact top-k of a stream of scores by ``keys``.

Scores below the threshold, the k-th best score so far, are skipped. The other scores, a small part, become unordered candidates. When a
query's slots are full, only its k largest keys are kept. Callers validate the inputs of the kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.base.machine.chunks import lowest_bit
from wikidx.indexer.indexes.keys import NO_KEY, Keys, encode, keep_largest, lowest_score
from wikidx.indexer.scope import Words
from wikidx.indexer.vectors.products import ScoredRows

_SMALLEST_SCORE = np.finfo(np.float32).min  # excludes -inf, which is never a result


class Candidates(NamedTuple):
    """One thread's candidates for the k best of Q queries.

    Attributes:
        k: number of results per query.
        thresholds: see ``initial_thresholds``; shared by the threads.
        keys: int64 (Q, slots), unordered, with at least k slots.
        counts: int64 (Q,), number of used slots.
    """

    k: int
    thresholds: NDArray[np.float32]
    keys: Keys
    counts: NDArray[np.int64]


def initial_thresholds(n_queries: int, n_lines: int) -> NDArray[np.float32]:
    """Return the initial thresholds of a search, float32 (n_lines,). A score that reaches its threshold may be among the k best.

    Threads write thresholds without a lock. Every written value is valid, because at least k candidates of the writing thread reach it.
    Padding lines, which complete a panel, have the threshold +inf.
    """
    thresholds = np.full(n_lines, np.inf, dtype=np.float32)
    thresholds[:n_queries] = _SMALLEST_SCORE
    return thresholds


def empty_candidates(n_queries: int, k: int, n_slots: int, thresholds: NDArray[np.float32]) -> Candidates:
    """Return candidates with all slots free."""
    return Candidates(k, thresholds, np.full((n_queries, n_slots), NO_KEY, dtype=np.int64), np.zeros(n_queries, dtype=np.int64))


def finalize(candidates: Candidates) -> Keys:
    """Return the keys of the candidates. Unused slots are overwritten by NO_KEY."""
    keys = candidates.keys
    keys[np.arange(keys.shape[1]) >= candidates.counts[:, np.newaxis]] = NO_KEY
    return keys


@kernel
def collect(scored: ScoredRows, n_rows: int, first_row: int, allowed: Words, first_line: int, candidates: Candidates) -> None:
    """Offer the first ``n_rows`` of some scored rows to the candidates.

    The rows are numbered from ``first_row`` on; the queries belong to the candidates' lines from ``first_line`` on. Rows whose bits in
    ``allowed`` are 0 are skipped; without bits, none. NaN and -inf never reach a threshold.
    """
    for number in range(n_rows):
        reached = np.uint64(scored.reached[number])
        if reached == 0 or (len(allowed) > 0 and not _has(allowed, first_row + number)):
            continue
        while reached:
            query = lowest_bit(reached)
            reached &= reached - np.uint64(1)
            _offer(scored.scores[number, query], first_row + number, first_line + query, candidates)


@kernel
def _offer(score: np.float32, row: int, line: int, candidates: Candidates) -> None:
    keys, n_used = candidates.keys[line], candidates.counts[line]
    if n_used == len(keys):
        keep_largest(keys, candidates.k)
        n_used = candidates.k
        candidates.thresholds[line] = max(candidates.thresholds[line], lowest_score(keys[:n_used]))
    if score >= candidates.thresholds[line]:
        keys[n_used] = encode(score, row)
        n_used += 1
    candidates.counts[line] = n_used


@kernel
def _has(words: Words, row: int) -> bool:
    return bool((words[row >> 6] >> np.uint64(row & 63)) & np.uint64(1))

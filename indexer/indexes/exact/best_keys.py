"""Exact top-k of a stream of scores by integer keys. The k largest keys are the k best rows.

A key is an int64. Its upper half is the bits of the score, transformed so that keys order as the scores do. Its lower half is 2^32 - 1
minus the row, so that ties go to the lower row. The result does not depend on the order in which rows are scored, or on the devices.

Scores below the threshold, the k-th best score so far, are skipped. The other scores, a small part, become unordered candidates. When a
query's slots are full, only its k largest keys are kept. Callers validate the inputs of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.corpora.store import Rows
from wikidx.indexer.base import NO_ROW, Hits
from wikidx.indexer.vectors.products import ScoredRows

Keys = NDArray[np.int64]

LARGEST_ROW = 2**32 - 1
NO_KEY = np.iinfo(np.int64).min

_ALL_BUT_SIGN = 0x7FFFFFFF
_MINUS_ZERO = np.iinfo(np.int32).min
_SMALLEST_SCORE = np.finfo(np.float32).min  # excludes -inf, which is never a result
_BIT_NUMBERS = np.zeros(19, dtype=np.int64)  # exponent n of 2^n, by 2^n modulo 19: the remainders of 2^0 … 2^17 differ
_BIT_NUMBERS[[2**number % 19 for number in range(18)]] = np.arange(18)


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


def best_hits(keys: Keys, k: int) -> Hits:
    """Return the k best of each line of keys, shape (Q, n) for any n, as hits."""
    n_kept = min(k, keys.shape[1])
    best = np.partition(keys, keys.shape[1] - n_kept, axis=1)[:, -n_kept:] if 0 < n_kept < keys.shape[1] else keys
    best = np.sort(best, axis=1)[:, ::-1]
    if n_kept < k:
        best = np.pad(best, ((0, 0), (0, k - n_kept)), constant_values=NO_KEY)
    ordered = (best >> 32).astype(np.int32)
    scores = (ordered ^ ((ordered >> 31) & _ALL_BUT_SIGN)).view(np.float32)
    is_empty = best == NO_KEY
    return Hits(np.where(is_empty, NO_ROW, LARGEST_ROW - (best & LARGEST_ROW)), np.where(is_empty, np.float32(-np.inf), scores))


def encode_keys(hits: Hits) -> Keys:
    """Return the key of each hit, int64 of the hits' shape: the inverse of ``best_hits``."""
    bits = np.ascontiguousarray(hits.scores).view(np.int32)
    ordered: NDArray[np.int32] = np.where(bits == _MINUS_ZERO, np.int32(0), bits ^ ((bits >> 31) & _ALL_BUT_SIGN))
    return np.where(hits.rows == NO_ROW, NO_KEY, (ordered.astype(np.int64) << 32) | (LARGEST_ROW - hits.rows))


def merge_hits(parts: Sequence[Hits], n_queries: int, k: int) -> Hits:
    """Return the k best hits of several parts for each query. The order is that of a search over all rows.

    Args:
        parts: hits with disjoint rows, each of shape (Q, n) for any n.
        n_queries: Q.
        k: number of results.
    """
    keys = [encode_keys(part) for part in parts] or [np.empty((n_queries, 0), dtype=np.int64)]
    return best_hits(np.concatenate(keys, axis=1) if len(keys) > 1 else keys[0], k)


@kernel
def collect(scored: ScoredRows, n_rows: int, first_row: int, missing: Rows, first_line: int, candidates: Candidates) -> None:
    """Offer the first ``n_rows`` of some scored rows to the candidates.

    The rows are numbered from ``first_row`` on; the queries belong to the candidates' lines from ``first_line`` on. Rows in ``missing``,
    which is ascending, are skipped. NaN and -inf never reach a threshold.
    """
    for number in range(n_rows):
        reached = np.int64(scored.reached[number])
        if reached == 0 or _contains(missing, first_row + number):
            continue
        while reached:
            lowest = reached & -reached
            query = _BIT_NUMBERS[lowest % 19]
            reached ^= lowest
            _offer(scored.scores[number, query : query + 1], first_row + number, first_line + query, candidates)


@kernel
def _offer(score: NDArray[np.float32], row: int, line: int, candidates: Candidates) -> None:
    """Offer one score, given as an array of length 1."""
    keys, n_used = candidates.keys[line], candidates.counts[line]
    if n_used == len(keys):
        keep_largest(keys, candidates.k)
        n_used = candidates.k
        candidates.thresholds[line] = max(candidates.thresholds[line], _score(keys[:n_used].min()))
    if score[0] >= candidates.thresholds[line]:
        keys[n_used] = _key(score.view(np.int32)[0], row)
        n_used += 1
    candidates.counts[line] = n_used


@kernel
def keep_largest(keys: Keys, k: int) -> None:
    """Move the k largest of distinct keys to the front, unordered.

    The algorithm is quickselect around the median of three. Its inner loop has no branch, because the CPU could not predict it.
    """
    low, stop = 0, len(keys)  # keys before ``low`` are kept, keys from ``stop`` on are not
    while stop - low > 2:
        first, middle, last = keys[low], keys[(low + stop) // 2], keys[stop - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        n_larger = low
        for i in range(low, stop):
            key = keys[i]
            keys[i] = keys[n_larger]
            keys[n_larger] = key
            n_larger += key > pivot
        if n_larger == k:
            return
        if n_larger > k:
            stop = n_larger
        else:
            low = n_larger
    if stop - low == 2 and keys[low] < keys[low + 1]:
        keys[low], keys[low + 1] = keys[low + 1], keys[low]


@kernel
def _key(score_bits: np.int32, row: int) -> np.int64:
    ordered = np.int64(0 if score_bits == _MINUS_ZERO else score_bits ^ ((score_bits >> 31) & _ALL_BUT_SIGN))
    return np.int64((ordered << 32) | (LARGEST_ROW - row))


@kernel
def _score(key: int) -> np.float32:
    ordered, bits = key >> 32, np.empty(1, dtype=np.int32)
    bits[0] = ordered ^ ((ordered >> 63) & _ALL_BUT_SIGN)
    return np.float32(bits.view(np.float32)[0])


@kernel
def _contains(rows: Rows, row: int) -> bool:
    """Return whether the ascending rows contain a row."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low < len(rows) and rows[low] == row

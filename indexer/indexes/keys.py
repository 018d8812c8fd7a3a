"""Keys of scored rows: the k largest keys are the k best rows, whatever the order in which rows are scored, or the device.

A key is an int64. Its upper half is the bits of the score, transformed so that keys order as the scores do. Its lower half is 2^32 - 1
minus the row, so that ties go to the lower row. Rows must be below 2^32. In Python, the kernels of one key also take arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.base import NO_ROW, Hits

Keys = NDArray[np.int64]

LARGEST_ROW = 2**32 - 1
NO_KEY = np.iinfo(np.int64).min

_ALL_BUT_SIGN = 0x7FFFFFFF


def best_hits(keys: Keys, k: int) -> Hits:
    """Return the k best of each line of keys, shape (Q, n) for any n, as hits."""
    n_kept = min(k, keys.shape[1])
    best = np.partition(keys, keys.shape[1] - n_kept, axis=1)[:, -n_kept:] if 0 < n_kept < keys.shape[1] else keys
    best = np.sort(best, axis=1)[:, ::-1]
    if n_kept < k:
        best = np.pad(best, ((0, 0), (0, k - n_kept)), constant_values=NO_KEY)
    is_empty = best == NO_KEY
    return Hits(np.where(is_empty, NO_ROW, row_of.py_func(best)), np.where(is_empty, np.float32(-np.inf), score_of.py_func(best)))


def encode_keys(hits: Hits) -> Keys:
    """Return the key of each hit, int64 of the hits' shape: the inverse of ``best_hits``."""
    return np.where(hits.rows == NO_ROW, NO_KEY, encode.py_func(hits.scores, hits.rows))


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
def write_largest(keys: Keys, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> int:
    """Write the rows and scores of the largest of distinct keys, best first, and return their number; the keys are reordered."""
    if len(keys) > len(rows):
        keep_largest(keys, len(rows))
        keys = keys[: len(rows)]
    sort_keys(keys)
    for n in range(len(keys)):
        key = keys[len(keys) - 1 - n]
        rows[n], scores[n] = row_of(key), score_of(key)
    return len(keys)


@kernel
def sort_keys(keys: Keys) -> None:
    """Sort keys, ascending, by Shell's method, which is compiled in a tenth of the time of numba's ``sort``."""
    gap = 1
    while gap < len(keys) // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(keys)):
            key, position = keys[i], i
            while position >= gap and keys[position - gap] > key:
                keys[position] = keys[position - gap]
                position -= gap
            keys[position] = key
        gap //= 3


@kernel
def lowest_score(keys: Keys) -> np.float32:
    """Return the score of the smallest key, of at least one."""
    lowest = keys[0]
    for key in keys:
        lowest = min(lowest, key)
    score: np.float32 = score_of(lowest)
    return score


@kernel
def encode(score: np.float32, row: int) -> np.int64:
    """Return the key of a score and a row; -0 becomes 0."""
    bits = np.float32(score + np.float32(0)).view(np.int32)
    return np.int64(np.int64(bits ^ ((bits >> 31) & _ALL_BUT_SIGN)) << 32 | (LARGEST_ROW - row))


@kernel
def row_of(key: int) -> np.int64:
    """Return the row of a key."""
    return np.int64(LARGEST_ROW - (key & LARGEST_ROW))


@kernel
def score_of(key: int) -> np.float32:
    """Return the score of a key."""
    ordered = np.int32(key >> 32)
    score: np.float32 = np.int32(ordered ^ ((ordered >> 31) & _ALL_BUT_SIGN)).view(np.float32)
    return score

"""Combining ranked lists: numba on plain arrays. No user input comes here; ``fusion`` checks it.

L lists of at most D places each, rows int64 (L, D) and scores float32 (L, D), empty places row -1. A target t combines the lists
``members[starts[t]:starts[t + 1]]``, in that order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexer.compiled import kernel

MAX, RRF = 0, 1  # how a row's value follows from its places in several lists
RRF_K = 60.0  # Cormack, Clarke and Büttcher, SIGIR 2009


@kernel
def combine(
    rows: NDArray[np.int64], scores: NDArray[np.float32], members: NDArray[np.int64], starts: NDArray[np.int64], rule: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each target the combined list, best first, ties by ascending row: rows and scores, shape (T, longest)."""
    depth = rows.shape[1]
    n_targets = len(starts) - 1
    longest = 0
    for t in range(n_targets):
        longest = max(longest, (starts[t + 1] - starts[t]) * depth)
    out_rows = np.full((n_targets, longest), -1, dtype=np.int64)
    out_scores = np.full((n_targets, longest), -np.inf, dtype=np.float32)
    found_rows = np.empty(longest, dtype=np.int64)
    found_values = np.empty(longest, dtype=np.float64)
    for t in range(n_targets):
        n = 0
        for m in range(starts[t], starts[t + 1]):
            for rank in range(depth):
                row = rows[members[m], rank]
                if row < 0:
                    break
                found_rows[n] = row
                found_values[n] = scores[members[m], rank] if rule == MAX else 1.0 / (RRF_K + rank + 1)
                n += 1
        n_distinct = _combine_equal_rows(found_rows, found_values, n, rule)
        _write_sorted(found_rows[:n_distinct], found_values[:n_distinct], out_rows[t], out_scores[t])
    return out_rows, out_scores


@kernel
def _combine_equal_rows(found_rows: NDArray[np.int64], found_values: NDArray[np.float64], n: int, rule: int) -> int:
    """Bring equal rows together, in place and by ascending row; values of one row combine in the order they were found. Return how many."""
    order = np.argsort(found_rows[:n], kind="mergesort")  # stable
    sorted_rows = found_rows[:n][order]
    sorted_values = found_values[:n][order]
    last = -1
    for i in range(n):
        if last >= 0 and sorted_rows[i] == found_rows[last]:
            if rule == MAX:
                found_values[last] = max(found_values[last], sorted_values[i])
            else:
                found_values[last] += sorted_values[i]
        else:
            last += 1
            found_rows[last] = sorted_rows[i]
            found_values[last] = sorted_values[i]
    return last + 1


@kernel
def _write_sorted(
    rows: NDArray[np.int64], values: NDArray[np.float64], out_rows: NDArray[np.int64], out_scores: NDArray[np.float32]
) -> None:
    """Write by descending value as float32; the rows come in ascending order and a stable sort leaves ties so."""
    order = np.argsort(-values.astype(np.float32), kind="mergesort")
    for i in range(len(order)):
        out_rows[i] = rows[order[i]]
        out_scores[i] = np.float32(values[order[i]])


@kernel
def keep_first(rows: NDArray[np.int64], keys: NDArray[np.uint64], k: int, out_rows: NDArray[np.int64]) -> int:
    """Copy to ``out_rows`` the first k rows whose keys differ from all before; return how many. ``keys`` is indexed by row."""
    n = 0
    for i in range(len(rows)):
        if rows[i] < 0 or n == k:
            break
        is_new = True
        for j in range(n):
            if keys[out_rows[j]] == keys[rows[i]]:
                is_new = False
                break
        if is_new:
            out_rows[n] = rows[i]
            n += 1
    return n

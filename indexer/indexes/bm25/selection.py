"""The k best of a stream of scores, exactly, ties going to the lower row. Kernels on plain arrays; no user input comes here.

A heap of k (score, row) pairs keeps the worst kept pair at the top. Rows must come in ascending order, so a later equal score never
displaces an earlier one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel


@kernel
def _is_worse(score: np.float32, row: np.int64, other_score: np.float32, other_row: np.int64) -> bool:
    return bool(score < other_score or (score == other_score and row > other_row))


@kernel
def _sift_down(scores: NDArray[np.float32], rows: NDArray[np.int64], start: int, n: int) -> None:
    """Restore the heap below ``start``: every parent is worse than its children."""
    parent = start
    while 2 * parent + 1 < n:
        child = 2 * parent + 1
        if child + 1 < n and _is_worse(scores[child + 1], rows[child + 1], scores[child], rows[child]):
            child += 1
        if not _is_worse(scores[child], rows[child], scores[parent], rows[parent]):
            return
        scores[parent], scores[child] = scores[child], scores[parent]
        rows[parent], rows[child] = rows[child], rows[parent]
        parent = child


@kernel
def offer_rows(
    candidates: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]
) -> None:
    """Offer the scores of some rows, ascending, to the heap; only scores above 0 count.

    An empty heap is all (-inf, -1): row -1 with -inf is worse than any candidate, and is never worse than another empty place.
    """
    threshold = max(np.float32(0), best_scores[0])
    for i in range(len(candidates)):
        if candidates[i] > threshold:
            best_scores[0] = candidates[i]
            best_rows[0] = rows[i]
            _sift_down(best_scores, best_rows, 0, len(best_scores))
            threshold = max(np.float32(0), best_scores[0])


@kernel
def sort_best(best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]) -> None:
    """Turn the heap into the answer: best first, empty places last."""
    for n in range(len(best_scores) - 1, 0, -1):
        best_scores[0], best_scores[n] = best_scores[n], best_scores[0]
        best_rows[0], best_rows[n] = best_rows[n], best_rows[0]
        _sift_down(best_scores, best_rows, 0, n)


@kernel
def take_best(scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]) -> None:
    """Fill in the best of some rows, ascending, given their scores, none below 0; only scores above 0 count.

    A stable radix sort of the scores' bits, inverted: as integers they are in the order of the scores.
    """
    keys, order = ~scores.view(np.uint32), np.arange(len(rows))
    moved = np.empty_like(order)
    for shift in (np.uint32(0), np.uint32(8), np.uint32(16), np.uint32(24)):
        places = np.zeros(257, dtype=np.int64)
        for i in range(len(keys)):
            places[((keys[i] >> shift) & np.uint32(255)) + 1] += 1
        for digit in range(256):
            places[digit + 1] += places[digit]
        for key in order:
            digits = (keys[key] >> shift) & np.uint32(255)
            moved[places[digits]] = key
            places[digits] += 1
        order, moved = moved, order
    for n in range(min(len(order), len(best_rows))):
        if scores[order[n]] == 0:
            break
        best_scores[n], best_rows[n] = scores[order[n]], rows[order[n]]

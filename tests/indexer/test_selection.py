from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from wikidx.indexer.indexes.bm25.search import merge_best


def slow_best(scores: list[float], k: int) -> list[tuple[float, int]]:
    """The definition: by score descending, then row ascending; only above 0; filled up with (-inf, -1)."""
    best = sorted(((-score, row) for row, score in enumerate(scores) if score > 0))[:k]
    return [(-score, row) for score, row in best] + [(-np.inf, -1)] * (k - len(best))


def select(scores: list[float], k: int, tile: int) -> list[tuple[float, int]]:
    best_scores = np.full(k, -np.inf, dtype=np.float32)
    best_rows = np.full(k, -1, dtype=np.int64)
    array: NDArray[np.float32] = np.array(scores, dtype=np.float32)
    for start in range(0, len(scores), tile):
        some = array[start : start + tile]
        merge_best(some, np.arange(start, start + len(some)), best_scores, best_rows)
    return list(zip(best_scores.tolist(), best_rows.tolist(), strict=True))


small = st.integers(0, 3).map(float)  # few values: many ties


@given(st.lists(small, max_size=60), st.integers(1, 20), st.integers(1, 70))
def test_taking_better_ones_is_the_sorted_prefix(scores: list[float], k: int, tile: int) -> None:
    assert select(scores, k, tile) == slow_best(scores, k)


@given(st.lists(st.sampled_from([0.0, 0.5, 1e-30, 2.0, 2.0000002, 3e30]), max_size=60), st.integers(1, 70), st.integers(1, 5))
@pytest.mark.parametrize("take", [merge_best, merge_best.py_func], ids=["kernel", "Python"])
def test_taking_the_best_is_the_sorted_prefix(take: Callable[..., None], scores: list[float], k: int, step: int) -> None:
    best_scores, best_rows = np.full(k, -np.inf, dtype=np.float32), np.full(k, -1, dtype=np.int64)
    given_scores = np.array(scores, dtype=np.float32)
    take(given_scores, np.arange(len(scores)) * step, best_scores, best_rows)
    expected = [(score, row * step if row >= 0 else -1) for score, row in slow_best(given_scores.tolist(), k)]
    assert list(zip(best_scores.tolist(), best_rows.tolist(), strict=True)) == expected

"""The kernels of exact search compared with numpy, and with themselves in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from wikidx.indexer.indexes import keys as of_rows
from wikidx.indexer.indexes.exact.collecting import collect, empty_candidates, finalize, initial_thresholds
from wikidx.indexer.indexes.keys import best_hits, keep_largest
from wikidx.indexer.vectors.products import PANEL, ROWS, SMALL_PANEL, Prefetch, ScoredRows, pack_panels, score_rows, widen

NOWHERE = Prefetch(np.int64(0), 64)
floats = st.floats(width=32, allow_nan=False, allow_infinity=True) | st.sampled_from([0.0, -0.0, 1.0, -1.0])


@pytest.mark.parametrize("dim", [1, 2, 15, 16, 17, 384])
@pytest.mark.parametrize("n_queries", [1, SMALL_PANEL, SMALL_PANEL + 1, PANEL])
def test_score_rows_gives_products_and_what_reaches_thresholds(n_queries: int, dim: int) -> None:
    generator = np.random.default_rng(dim)
    rows, queries = (generator.integers(-9, 10, (n, dim)).astype(np.float32) for n in (ROWS + 3, n_queries))
    (panel,) = pack_panels(queries)
    width = panel.shape[1]
    assert width == (SMALL_PANEL if n_queries <= SMALL_PANEL else PANEL)
    thresholds = np.full(width, np.inf, dtype=np.float32)
    thresholds[:n_queries] = generator.integers(-20, 20, n_queries)
    scored = ScoredRows(np.empty((ROWS, width), dtype=np.float32), np.empty(ROWS, dtype=np.uint16))
    score_rows(rows, panel, thresholds, scored, NOWHERE)
    expected = rows[:ROWS] @ queries.T
    np.testing.assert_array_equal(scored.scores[:, :n_queries], expected)
    np.testing.assert_array_equal(scored.scores[:, n_queries:], 0)
    bits = (expected >= thresholds[:n_queries]) @ (1 << np.arange(n_queries))
    np.testing.assert_array_equal(scored.reached, bits)


def test_widen_gives_every_finite_float16_and_else_nan() -> None:
    every = np.arange(65_536, dtype=np.uint16)
    is_finite = np.isfinite(every.view(np.float16))
    bits, others = every[is_finite].reshape(-1, 64), every[~is_finite].reshape(-1, 64)
    for function in (widen, widen.py_func):
        some = bits if function is widen else bits[::100]
        wide = np.full(some.shape, np.nan, dtype=np.float32)
        function(some, wide)
        np.testing.assert_array_equal(wide.view(np.uint32), some.view(np.float16).astype(np.float32).view(np.uint32))
        wide = np.zeros(others.shape, dtype=np.float32)
        function(others, wide)
        assert np.isnan(wide).all()


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=80, unique=True), st.integers(0, 79), st.booleans())
def test_keep_largest_brings_the_largest_to_the_front(values: list[int], k: int, compiled: bool) -> None:
    k = 1 + k % len(values)
    keys = np.array(values, dtype=np.int64)
    (keep_largest if compiled else keep_largest.py_func)(keys, k)
    assert sorted(keys[:k].tolist(), reverse=True) == sorted(values, reverse=True)[:k]
    assert sorted(keys.tolist()) == sorted(values)


@given(st.lists(st.tuples(floats, st.integers(0, of_rows.LARGEST_ROW)), min_size=1, max_size=20, unique_by=lambda pair: pair[1]))
def test_keys_order_by_score_and_then_by_lower_row(pairs: list[tuple[float, int]]) -> None:
    keys = [int(of_rows.encode(np.float32(score), row)) for score, row in pairs]
    assert keys == [int(of_rows.encode.py_func(np.float32(score), row)) for score, row in pairs]
    hits = best_hits(np.array([keys]), len(pairs) + 2)
    expected = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    assert hits.rows[0].tolist() == [row for _, row in expected] + [-1, -1]
    assert hits.scores[0].tolist() == [score for score, _ in expected] + [-np.inf, -np.inf]
    assert [of_rows.score_of(key) for key in keys] == [score for score, _ in pairs]


def slow_collect(lines: list[list[float]], k: int, missing: set[int]) -> list[list[tuple[float, int]]]:
    """Return the k best (score, row) of each line."""
    found = [[(score, row) for row, score in enumerate(line) if row not in missing and score > -np.inf] for line in lines]
    return [sorted(line, key=lambda pair: (-pair[0], pair[1]))[:k] for line in found]


@given(
    st.integers(1, 60).flatmap(lambda n: st.lists(st.lists(st.integers(-3, 3) | floats, min_size=n, max_size=n), min_size=1, max_size=3)),
    st.integers(1, 12),
    st.integers(0, 9),
    st.sets(st.integers(0, 59), max_size=4),
)
@pytest.mark.parametrize("function", [collect, collect.py_func], ids=["kernel", "Python"])
def test_collect_keeps_the_best(
    function: Callable[..., Any], lines: list[list[float]], k: int, n_spare: int, missing_rows: set[int]
) -> None:
    scores = np.array(lines, dtype=np.float32)
    n_queries, n_rows = scores.shape
    k = min(k, n_rows)
    candidates = empty_candidates(n_queries, k, min(k + 1 + n_spare, n_rows), initial_thresholds(n_queries, SMALL_PANEL))
    allowed = np.packbits([row not in missing_rows for row in range(64)], bitorder="little").view(np.uint64)
    for first in range(0, n_rows, 7):
        some = np.full((7, SMALL_PANEL), np.nan, dtype=np.float32)
        n_some = min(7, n_rows - first)
        some[:n_some, :n_queries] = scores[:, first : first + 7].T
        reached = ((some >= candidates.thresholds) @ (1 << np.arange(SMALL_PANEL))).astype(np.uint16)
        function(ScoredRows(some, reached), n_some, first, allowed, 0, candidates)
    hits = best_hits(finalize(candidates), k)
    for line, expected in enumerate(slow_collect(scores.tolist(), k, missing_rows)):
        assert list(zip(hits.scores[line].tolist(), hits.rows[line].tolist(), strict=True))[: len(expected)] == expected
        assert (hits.rows[line, len(expected) :] == -1).all()


@pytest.mark.parametrize(("cpu", "features", "expected"), [("generic", "", 6), ("skylake-avx512", "+avx2,+avx512f", 24)])
def test_rows_at_once_go_by_what_numba_compiles_for(cpu: str, features: str, expected: int) -> None:
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, "-c", "from wikidx.indexer.vectors.products import ROWS; print(ROWS)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert ran.stdout == f"{expected}\n"


def test_the_prefetched_address_need_not_be_valid() -> None:
    scored = ScoredRows(np.empty((ROWS, SMALL_PANEL), dtype=np.float32), np.empty(ROWS, dtype=np.uint16))
    rows, (panel,) = np.ones((ROWS, 4), dtype=np.float32), pack_panels(np.ones((1, 4), dtype=np.float32))
    for address in (-1, 1, 2**62):
        score_rows(rows, panel, np.zeros(SMALL_PANEL, dtype=np.float32), scored, Prefetch(np.int64(address), 96))
        assert (scored.scores[:, 0] == 4).all()

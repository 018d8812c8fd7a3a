"""Exact search alone: the values of every engine, the numba one, and the torch one, which GPUs run, on one and on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.indexer.made_vectors import assert_same, brute_force
from wikidx.base.machine.fit import Placement
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.indexes.exact import cpu as exact_cpu
from wikidx.indexer.indexes.exact.index import ExactIndex

ENGINES = {"numba": ("cpu",), "torch": ("cpu:0",), "torch, three devices": ("cpu",) * 3}
ENGINES["torch, little room"] = ("cpu:0",)  # several tiles, merges and batches in small data


LITTLE_ROOM = {"gpu._MAX_KEYS": 1000, "gpu._TILE_SCORES": 512, "gpu_best._MOST_EXAMINED": 1000}
LITTLE_ROOM |= {"gpu_best._LEAST_ROOM": 128, "gpu_best._LEAST_ROOMS": 128}


@pytest.fixture(params=ENGINES)
def devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    if request.param != "numba":
        pytest.importorskip("torch", reason="needs the extra 'dense'")
    if request.param == "torch, little room":
        for name, value in LITTLE_ROOM.items():
            monkeypatch.setattr(f"wikidx.indexer.indexes.exact.{name}", value)
    return ENGINES[str(request.param)]


def index_of(vectors: NDArray[Any], devices: tuple[str, ...]) -> ExactIndex:
    return ExactIndex(vectors, placement=Placement(devices, ""))


def whole(n: int, dim: int, seed: int) -> Vectors:
    """Small whole numbers: their products are exact however they are added up, and many are equal."""
    return np.random.default_rng(seed).integers(-2, 3, (n, dim)).astype(np.float32)


def made(n: int, dim: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize(
    ("n", "dim", "n_queries"),
    [
        (1, 3, 1),
        (2, 1, 2),
        (47, 16, 8),
        (48, 7, 9),
        (49, 64, 16),
        (500, 5, 17),
        (2500, 24, 33),  # more than a block
        (2200, 4, 130),  # more than eight panels
    ],
)
def test_rows_scores_and_ties_are_those_of_brute_force(n: int, dim: int, n_queries: int, stored: str, devices: tuple[str, ...]) -> None:
    vectors, queries = whole(n, dim, 0).astype(stored), whole(n_queries, dim, 1)
    index = index_of(vectors, devices)
    assert (len(index), index.dim) == (n, dim)
    for k in (1, 10, n + 5):
        assert_same(index.search(queries, k), brute_force(vectors, queries, k))


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_scores_are_those_of_float64_within_rounding(stored: str, devices: tuple[str, ...]) -> None:
    vectors, queries = made(3000, 384, 0).astype(stored), made(20, 384, 1)
    hits = index_of(vectors, devices).search(queries, 50)
    expected = brute_force(vectors, queries, 50)
    np.testing.assert_allclose(hits.scores, expected.scores, rtol=2e-6)
    assert (np.diff(hits.scores, axis=1) <= 0).all()
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T  # neighbours within rounding may change places
    np.testing.assert_allclose(np.take_along_axis(products, hits.rows, axis=1), expected.scores, rtol=2e-6)
    assert all(len(set(line)) == 50 for line in hits.rows.tolist())


@pytest.mark.parametrize("scale", [1e-30, 1e-5, 1.0, 1e20])
def test_queries_of_any_size_keep_their_precision(scale: float, devices: tuple[str, ...]) -> None:
    vectors, queries = made(300, 64, 0).astype(np.float16), (made(3, 64, 1) * np.float32(scale)).astype(np.float32)
    hits = index_of(vectors, devices).search(queries, 300)
    np.testing.assert_allclose(hits.scores, brute_force(vectors, queries, 300).scores, rtol=1e-6, atol=1e-5 * scale)


@pytest.mark.parametrize("growth", [-1, 0, 1])
def test_rows_that_get_better_or_worse_or_are_equal(growth: int, devices: tuple[str, ...]) -> None:
    vectors, queries = growth * np.arange(20_000, dtype=np.float32)[:, np.newaxis], np.ones((5, 1), dtype=np.float32)
    for k in (70, 1200):
        assert_same(index_of(vectors, devices).search(queries, k), brute_force(vectors, queries, k))


def test_products_beyond_float32(devices: tuple[str, ...]) -> None:
    large = 3e38
    vectors = np.array([[-large, 0], [large, 0], [large, -large], [1e-3, 0], [large, 0]], dtype=np.float32)
    hits = index_of(vectors, devices).search(np.array([[large, large]]), 5)
    found = {row: score for row, score in zip(hits.rows[0].tolist(), hits.scores[0].tolist(), strict=True) if row >= 0}
    found.pop(2, None)  # inf - inf, which is never found, or inf where products are not rounded before they are added
    assert list(found) == [1, 4, 3]
    np.testing.assert_allclose(list(found.values()), [np.inf, np.inf, 3e35])


def test_vectors_and_queries_may_lie_anyhow(devices: tuple[str, ...]) -> None:
    vectors, queries = whole(100, 12, 0), whole(4, 12, 1)
    expected = brute_force(vectors, queries, 10)
    assert_same(index_of(np.asfortranarray(vectors), devices).search(np.asfortranarray(queries), 10), expected)
    assert_same(index_of(np.repeat(vectors, 2, axis=0)[::2], devices).search(queries.astype(np.float64), 10), expected)


def test_more_results_than_are_held_at_once(devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, queries = whole(1000, 6, 0), whole(30, 6, 1)
    monkeypatch.setattr(exact_cpu, "_CANDIDATE_BYTES", 20_000)
    for k in (3, 400):
        assert_same(index_of(vectors, devices).search(queries, k), brute_force(vectors, queries, k))


def test_on_a_cpu_scores_have_the_same_bits_whatever_the_batch() -> None:
    vectors, queries = made(3000, 100, 0), made(40, 100, 1)
    index = index_of(vectors, ("cpu",))
    together, alone = index.search(queries, 30), [index.search(queries[n : n + 1], 30) for n in range(40)]
    assert_same(together, Hits(np.concatenate([hits.rows for hits in alone]), np.concatenate([hits.scores for hits in alone])))
    assert_same(index_of(vectors, ("cpu",)).search(queries[::-1], 30), Hits(together.rows[::-1], together.scores[::-1]))

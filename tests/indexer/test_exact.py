from __future__ import annotations

import numpy as np
import pytest

from indexer.base import Hits, Vectors
from indexer.indexes.exact import ExactIndex


def brute_force(vectors: Vectors, queries: Vectors, k: int) -> Hits:
    """Sort all float64 products; pad to k."""
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T
    rows = np.argsort(-products, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(products, rows, axis=1)
    pad = ((0, 0), (0, k - rows.shape[1]))
    return Hits(np.pad(rows, pad, constant_values=-1), np.pad(scores, pad, constant_values=-np.inf).astype(np.float32))


def made(n: int, dim: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


@pytest.mark.parametrize("n_queries", [1, 3, 200])
@pytest.mark.parametrize("k", [1, 10, 700])
@pytest.mark.parametrize("sizes", [[500], [200, 200, 100], [1] * 5], ids=str)
def test_search_agrees_with_brute_force(sizes: list[int], k: int, n_queries: int) -> None:
    vectors, queries = made(sum(sizes), 16, 0), made(n_queries, 16, 1)
    hits = ExactIndex(np.split(vectors, np.cumsum(sizes)[:-1])).search(queries, k)
    expected = brute_force(vectors, queries, k)
    assert hits.rows.dtype == np.int64
    assert hits.scores.dtype == np.float32
    np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-5, atol=1e-5)
    # Order may differ only where scores are equal within rounding: the rows found have the scores expected at their places.
    products = np.append(queries @ vectors.T, np.full((n_queries, 1), -np.inf, dtype=np.float32), axis=1)  # row -1 is the last
    np.testing.assert_allclose(np.take_along_axis(products, hits.rows, axis=1), expected.scores, rtol=1e-5, atol=1e-5)
    assert all(len(set(line[line >= 0].tolist())) == min(k, len(vectors)) for line in hits.rows)
    assert (np.diff(hits.scores[:, : len(vectors)], axis=1) <= 0).all()


def test_equal_vectors_come_by_ascending_row_across_shards() -> None:
    vector = np.arange(8, dtype=np.float32)[np.newaxis]  # whole numbers: products are exact however they are summed
    index = ExactIndex([np.repeat(vector, 5, axis=0), np.repeat(vector, 5, axis=0)])
    assert index.search(vector, 7).rows.tolist() == [[0, 1, 2, 3, 4, 5, 6]]


def test_tiles_smaller_than_a_shard_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, queries = made(300, 8, 0), made(4, 8, 1)
    whole = ExactIndex([vectors]).search(queries, 20)
    monkeypatch.setattr("indexer.indexes.exact._MAX_TILE_ROWS", 7)
    np.testing.assert_array_equal(ExactIndex([vectors]).search(queries, 20).rows, whole.rows)


def test_negative_products_are_found() -> None:
    index = ExactIndex([np.array([[-2.0], [-1.0]], dtype=np.float32)])
    assert index.search(np.array([[1.0]], dtype=np.float32), 3).rows.tolist() == [[1, 0, -1]]


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.zeros((1, 7), dtype=np.float32), r"shape \(1, 7\) do not fit an index of dimension 8"),
        (np.zeros(8, dtype=np.float32), r"shape \(8,\)"),
        (np.full((2, 8), [[0.0]], dtype=np.float32) + np.array([[0.0], [np.nan]], dtype=np.float32), "query vector 1 has components"),
    ],
    ids=["dimension", "one vector", "nan"],
)
def test_queries_that_do_not_fit_are_refused(queries: Vectors, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExactIndex([made(3, 8, 0)]).search(queries, 1)


def test_k_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 0"):
        ExactIndex([made(3, 8, 0)]).search(made(1, 8, 1), 0)


def test_no_queries_give_no_lines() -> None:
    assert ExactIndex([made(3, 8, 0)]).search(np.empty((0, 8), dtype=np.float32), 5).rows.shape == (0, 5)


@pytest.mark.parametrize("n_queries", [1, 64])
def test_search_agrees_with_faiss(n_queries: int) -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")
    vectors, queries = made(5000, 32, 0), made(n_queries, 32, 1)
    reference = faiss.IndexFlatIP(32)
    reference.add(vectors)
    scores, rows = reference.search(queries, 50)
    hits = ExactIndex([vectors[:3000], vectors[3000:]]).search(queries, 50)
    np.testing.assert_allclose(hits.scores, scores, rtol=1e-5, atol=1e-5)
    assert (hits.rows == rows).mean() > 0.99  # neighbours within rounding may change places

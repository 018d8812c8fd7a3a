"""``int8`` and ``binary``: their codes, and their approximate scores against numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.indexer.made_vectors import ENCODER, clustered, numbered_passages, put_vectors
from wikidx.corpora.build import open_store
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits, SearchParams, Stored, VectorIndex, Vectors
from wikidx.indexer.build import build_index, open_vector_index

pytest.importorskip("faiss", reason="needs the extra 'dense'")

N = 700
MISSING = [0, 13, 14, 699]
KINDS = ("int8", "binary")
Made = Callable[..., VectorIndex]


@pytest.fixture
def made(build: Callable[..., PassageStore]) -> Made:
    """Build an index of given vectors, and open it."""

    def make(vectors: Vectors, kind: str, stored: Stored = "float32") -> VectorIndex:
        store = build(numbered_passages(N))
        put_vectors(store, vectors, stored=stored, missing=MISSING)
        build_index("made", f"{ENCODER}-{kind}", store)
        return open_vector_index("made", f"{ENCODER}-{kind}", store)

    return make


def integer_scores(vectors: Vectors, queries: Vectors) -> NDArray[np.float32]:
    """Compute what ``int8`` approximates, with sums of 64 bits."""
    scales = np.abs(vectors).max(axis=0) / np.float32(127)
    scales[scales == 0] = 1
    codes = np.rint(vectors / scales).astype(np.int64)
    scaled = queries.astype(np.float64) * scales
    step = np.abs(scaled).max(axis=1, keepdims=True) / min(32_767, (2**31 - 1) // (127 * vectors.shape[1]))
    step[step == 0] = 1
    sums = np.rint(scaled / step).astype(np.int64) @ codes.T
    assert np.abs(sums).max() < 2**31
    scores: NDArray[np.float32] = (sums.astype(np.float32) * step).astype(np.float32)
    return scores


def best(scores: NDArray[np.float32], k: int) -> Hits:
    scores[:, MISSING] = -np.inf
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(rows, np.take_along_axis(scores, rows, axis=1))


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("dim", [1, 7, 32, 600])  # the sums of 600 components leave a query less than 16 bits
def test_scores_of_int8_are_those_of_numpy(dim: int, stored: Stored, made: Made) -> None:
    vectors, queries = clustered(N, dim, 0).astype(stored).astype(np.float32), clustered(21, dim, 1)
    vectors[:, dim // 2] = 0
    vectors[MISSING] = 0
    queries[3:6] *= np.array([[0], [1e30], [1e-30]])
    expected = best(integer_scores(vectors, queries), 50)
    hits = made(vectors, "int8", stored).search(queries, 50, SearchParams(refine=0))
    np.testing.assert_array_equal(hits.scores, expected.scores)
    np.testing.assert_array_equal(hits.rows, expected.rows)


@pytest.mark.parametrize("dim", [3, 8, 20])
def test_scores_of_binary_are_the_products_with_the_signs(dim: int, made: Made) -> None:
    vectors, queries = clustered(N, dim, 0), clustered(9, dim, 1)
    hits = made(vectors, "binary").search(queries, 40, SearchParams(refine=0))
    products = queries @ np.where(vectors > 0, 1, -1).T.astype(np.float32)
    atol = 0.02 * np.abs(products).max()  # the fast scan rounds the sums of four components to 8 bits
    np.testing.assert_allclose(hits.scores, np.take_along_axis(products, hits.rows, axis=1), atol=atol)
    np.testing.assert_allclose(hits.scores, best(products.copy(), 40).scores, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_candidates_are_in_the_exact_order(kind: str, made: Made) -> None:
    index, queries = made(clustered(N, 16, 0), kind), clustered(20, 16, 1)
    candidates = index.search(queries, 30, SearchParams(refine=0)).rows
    exact = open_vector_index("made", ENCODER, open_store("made")).search(queries, N)
    hits = index.search(queries, 10, SearchParams(refine=3))
    for number in range(len(queries)):
        is_candidate = np.isin(exact.rows[number], candidates[number])
        assert set(hits.rows[number].tolist()) <= set(exact.rows[number][is_candidate].tolist())
        if kind == "int8":  # FAISS may choose other candidates among equal approximate scores
            np.testing.assert_array_equal(hits.rows[number], exact.rows[number][is_candidate][:10])
            np.testing.assert_array_equal(hits.scores[number], exact.scores[number][is_candidate][:10])

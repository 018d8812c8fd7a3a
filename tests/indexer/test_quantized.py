"""``int8`` and ``binary``: their codes, their approximate scores against numpy's, and rescoring that equals exact search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.indexer.made_vectors import ENCODER, clustered, put_vectors
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits, SearchParams, Stored, VectorIndex, Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import VECTORS

pytest.importorskip("faiss", reason="needs the extra 'dense'")

N = 700
MISSING = [0, 13, 14, 699]
KINDS = ("int8", "binary")
Made = Callable[..., VectorIndex]


@pytest.fixture
def made(build: Callable[..., PassageStore]) -> Made:
    """Build the exact search and an index of given vectors, and open either."""

    def make(vectors: Vectors, kind: str, stored: Stored = "float32", missing: list[int] = MISSING) -> VectorIndex:
        store = build([Passage(str(n), "", str(n)) for n in range(len(vectors))])
        put_vectors(store, vectors, stored=stored, missing=missing)
        build_index("made", f"{ENCODER}-{kind}", store)
        return opened(f"{ENCODER}-{kind}", store)

    return make


def opened(name: str, store: PassageStore, rows: range | None = None, device: str = "cpu") -> VectorIndex:
    return open_vector_index("made", name, store, rows=rows, device=device)


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


def best(scores: NDArray[np.float32], k: int, missing: list[int]) -> Hits:
    scores = scores.copy()
    scores[:, missing] = -np.inf
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(rows, np.take_along_axis(scores, rows, axis=1))


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("dim", [1, 7, 32, 600])  # the sums of 600 components leave a query less than 16 bits
def test_scores_of_int8_are_those_of_numpy(dim: int, stored: Stored, made: Made) -> None:
    vectors, queries = clustered(N, dim, 0).astype(stored).astype(np.float32), clustered(21, dim, 1)
    vectors[:, dim // 2] = 0
    vectors[MISSING] = 0
    queries[3:6] *= np.array([[0], [1e30], [1e-30]])
    expected = best(integer_scores(vectors, queries), 50, MISSING)
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
    np.testing.assert_allclose(hits.scores, best(products, 40, MISSING).scores, atol=atol)


def test_codes_have_a_byte_and_a_bit_per_component(made: Made) -> None:
    vectors = clustered(N, 20, 0)
    codes = {}
    for kind in KINDS:
        made(vectors, kind)
        codes[kind] = np.load(index_ref("made", f"{ENCODER}-{kind}").path / VECTORS)
    assert (codes["int8"].shape, codes["binary"].shape) == ((N, 20), (N, 3))
    bits = np.unpackbits(codes["binary"], axis=1, bitorder="little")[:, :20]
    there = np.setdiff1d(np.arange(N), MISSING)
    np.testing.assert_array_equal(bits[there], vectors[there] > 0)


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [5, 64])
def test_rescoring_of_all_rows_is_exact_search_bit_for_bit(kind: str, dim: int, stored: Stored, made: Made) -> None:
    vectors, queries = clustered(N, dim, 0), clustered(30, dim, 1)
    vectors[100:160] = vectors[100]  # ties go to the lower row
    index = made(vectors, kind, stored)
    exact = open_vector_index("made", ENCODER, open_store("made"))
    for k in (10, N - len(MISSING), N + 5):
        hits = index.search(queries, k, SearchParams(refine=N // 10 + 1 if k == 10 else 1))
        expected = exact.search(queries, k)
        np.testing.assert_array_equal(hits.rows, expected.rows)
        np.testing.assert_array_equal(hits.scores, expected.scores)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_candidates_are_ordered_as_exact_search_orders_them(kind: str, made: Made) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_of_rows_has_the_numbers_and_scores_of_the_whole(kind: str, made: Made) -> None:
    queries, every = clustered(12, 16, 1), SearchParams(refine=100)
    index = made(clustered(N, 16, 0), kind)
    whole = index.search(queries, N, every)
    for rows in (range(0, 300), range(10, 20), range(300, N), range(13, 15)):
        hits = opened(f"{ENCODER}-{kind}", open_store("made"), rows).search(queries, 40, every)
        for number in range(len(queries)):
            expected = [row for row in whole.rows[number].tolist() if row in rows][:40]
            assert hits.rows[number].tolist() == expected + [-1] * (40 - len(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_gpu_is_asked_the_placement_says_that_the_cpu_searches(kind: str, made: Made) -> None:
    made(clustered(N, 8, 0), kind)
    placement = opened(f"{ENCODER}-{kind}", open_store("made"), device="cuda").placement
    assert placement.devices == ("cpu",)
    assert placement.reason == "quantized vectors on the CPU, which alone has this kind"

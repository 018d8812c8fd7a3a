"""The contract of all vector indexes: exact search by each engine, also over imported vectors, and every kind built from vectors."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import ROOT, corpus_of
from tests.indexer.made_vectors import (
    ENCODER,
    assert_same,
    brute_force,
    clustered,
    import_flat_index,
    numbered_passages,
    open_and_search,
    put_vectors,
)
from wikidx.base.artifacts.manifest import verify_files
from wikidx.base.errors import InputError
from wikidx.base.machine.fit import Placement
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.store import PassageStore
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams, Stored, VectorIndex, Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import built_indexes, index_ref
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.indexer.recall import recall
from wikidx.indexer.scope import Scope

pytest.importorskip("faiss", reason="needs the extra 'dense'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

pytestmark = pytest.mark.usefixtures("one_thread")

ENGINES = {"torch": ("cpu:0",), "torch, three devices": ("cpu",) * 3}  # of exact search on GPUs
IMPORTED = "none"  # vectors of a flat FAISS index, whose order is another one than that of the passages
BUILT = [f"{ENCODER}-{kind}" for kind in VECTOR_INDEXES]
STORED = [ENCODER, IMPORTED, *BUILT]  # opened from files; an encoder's name is exact search on a CPU
NAMES = [*ENGINES, *STORED]
QUANTIZED = ["minilm-int8", "minilm-binary"]

N, DIM, K = 3000, 32, 20
MISSING = [0, 5, 700, 701, 2999]
QUERIES, VECTORS = clustered(50, DIM, 1), clustered(N, DIM, 0)
EVERYTHING = SearchParams(nprobe=64, refine=30, ef_search=3000)  # each index takes those that it knows
# What each is off by, as a share of the largest product: rounding of float32 sums, of float16, or exact after rescoring
TOLERANCE = {name: 2e-3 if name in ("minilm-ivf", "minilm-hnsw") else 2e-6 for name in NAMES}
# Recall at 10 with the default parameters, if not 1; brute force itself loses about as much to ties within the rounding of float16
RECALL = {"minilm-ivf": 0.98, "minilm-ivfpq": 0.97, "minilm-hnsw": 0.98, "minilm-binary": 0.98}

Made = Callable[..., VectorIndex]


def put_and_build(name: str, store: PassageStore, vectors: Vectors, missing: Sequence[int] = (), stored: Stored = "float32") -> None:
    if name == IMPORTED:
        import_flat_index(store, vectors, missing)
    else:
        put_vectors(store, vectors, missing=missing, stored=stored)
    if name in BUILT:
        build_index("made", name, store)


def exact_by_torch(name: str, vectors: Vectors, missing: Sequence[int] = ()) -> VectorIndex:
    return ExactIndex(vectors, missing=np.array(missing, dtype=np.int64), placement=Placement(ENGINES[name], ""))


def search(index: VectorIndex, queries: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
    """Search, and check what holds of all hits."""
    hits = index.search(queries, k, params)
    assert hits.rows.shape == hits.scores.shape == (len(queries), k)
    assert hits.rows.dtype == np.int64
    assert hits.scores.dtype == np.float32
    assert ((hits.rows >= 0) == np.isfinite(hits.scores)).all()
    assert hits.rows.max(initial=-1) < len(index)
    for rows, scores in zip(hits.rows, hits.scores, strict=True):
        there = rows[rows >= 0]
        assert len(set(there.tolist())) == len(there)
        assert np.array_equal(np.lexsort((rows[: len(there)], -scores[: len(there)])), np.arange(len(there)))
        assert (rows[len(there) :] == -1).all()
    return hits


@pytest.fixture(scope="module")
def large_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data home with a corpus of ``N`` passages and all indexes over clustered vectors, some of them missing."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder))
        build_store(corpus_of(numbered_passages(N)), StoreOptions())
        for name in (IMPORTED, ENCODER):
            put_and_build(name, open_store("made"), VECTORS, MISSING)
        for name in BUILT:
            build_index("made", name, open_store("made"))
    return folder


@pytest.fixture
def large(large_home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> VectorIndex:
    """One index of ``large_home``, opened."""
    monkeypatch.setenv("IDX_HOME", str(large_home))
    return open_large(name, large_home)


@functools.cache
def open_large(name: str, home: Path) -> VectorIndex:
    return exact_by_torch(name, VECTORS, MISSING) if name in ENGINES else open_vector_index("made", name, open_store("made"))


@pytest.fixture
def made(build: Callable[..., PassageStore]) -> Made:
    """Build an index over vectors given, and open it."""

    def make(name: str, vectors: Vectors, missing: Sequence[int] = (), stored: Stored = "float32") -> VectorIndex:
        if name in ENGINES:
            return exact_by_torch(name, vectors.astype(stored), missing)
        store = build(numbered_passages(len(vectors)))
        put_and_build(name, store, vectors, missing, stored)
        return open_vector_index("made", name, store)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_hits_are_those_of_brute_force(large: VectorIndex, name: str) -> None:
    expected = brute_force(VECTORS, QUERIES, K, MISSING)
    hits = search(large, QUERIES, K)
    assert recall(hits, expected, 10) >= RECALL.get(name, 1.0)
    products = QUERIES @ VECTORS.T
    atol = TOLERANCE[name] * float(np.abs(products).max())
    np.testing.assert_allclose(hits.scores, np.take_along_axis(products, hits.rows, axis=1), atol=atol)
    np.testing.assert_allclose(search(large, QUERIES, K, EVERYTHING).scores, expected.scores, atol=atol)
    assert (len(large), large.dim) == (N, DIM)


SCOPES = {"half": 1 / 2, "tenth": 1 / 10, "hundredth": 1 / 100, "five rows": 5 / N, "range": 0, "none": -1}


@pytest.mark.parametrize("name", NAMES)
def test_hits_within_a_scope_are_those_of_brute_force_over_it(large: VectorIndex, name: str) -> None:
    for share in SCOPES.values():
        inside = np.random.default_rng(5).random(N) < share if share else (np.arange(N) >= 650) & (np.arange(N) < 1400)
        scope, outside = Scope.of(inside, N), [*np.flatnonzero(~inside), *MISSING]
        expected = brute_force(VECTORS, QUERIES, K, outside)
        hits = search(large, QUERIES, K, SearchParams(scope=scope))
        assert not np.isin(hits.rows, outside).any()
        assert ((hits.rows >= 0).sum(axis=1) == min(K, inside.sum() - inside[MISSING].sum())).all()
        assert not inside.any() or recall(hits, expected, 10) >= RECALL.get(name, 1.0)
        products = np.take_along_axis(QUERIES @ VECTORS.T, hits.rows, axis=1)
        found = hits.rows >= 0
        np.testing.assert_allclose(hits.scores[found], products[found], atol=TOLERANCE[name] * 40)
        exact = search(large, QUERIES, K, replace(EVERYTHING, scope=scope))
        np.testing.assert_allclose(exact.scores, expected.scores, atol=TOLERANCE[name] * 40)


@pytest.mark.parametrize("name", NAMES)
def test_missing_rows_are_never_found_and_shift_no_other(large: VectorIndex, name: str) -> None:
    there = np.setdiff1d(np.arange(N), MISSING)[::37]
    queries = (VECTORS[there] * (100 / np.linalg.norm(VECTORS[there], axis=1, keepdims=True))).astype(np.float32)
    expected = brute_force(VECTORS, queries, 1, MISSING)
    assert (search(large, queries, 5, EVERYTHING).rows[:, 0] == expected.rows[:, 0]).mean() > 0.99
    everything = search(large, QUERIES[:2], N, EVERYTHING)
    assert not np.isin(everything.rows, MISSING).any()
    assert (everything.rows >= 0).sum(axis=1).tolist() == [N - len(MISSING)] * 2


@pytest.mark.parametrize("name", NAMES)
def test_missing_rows_are_not_found_where_a_vector_of_zeros_were_the_best(made: Made, name: str) -> None:
    vectors, missing = -np.abs(clustered(400, 8, 0)), [0, 1, 99, 100, 101, 250, 398, 399]
    vectors[missing] = 0
    index = made(name, vectors, missing)
    for k in (5, 391, 392, 393):
        hits = search(index, np.ones((3, 8), dtype=np.float32), k, SearchParams(refine=30, ef_search=400))
        assert not np.isin(hits.rows, missing).any()
        if name not in ("minilm-ivfpq", "minilm-hnsw"):  # the fast scan passes over what scores worst, and the graph may not reach it
            assert (hits.rows >= 0).sum(axis=1).tolist() == [min(k, 392)] * 3


@pytest.mark.parametrize("name", NAMES)
def test_negative_products_are_found_and_more_results_than_rows_leave_places_empty(made: Made, name: str) -> None:
    vectors, queries = -np.abs(clustered(40, 4, 5)), np.ones((1, 4), dtype=np.float32)
    index = made(name, vectors)
    hits = search(index, queries, 5, SearchParams(nprobe=1, refine=10))
    np.testing.assert_allclose(hits.scores, brute_force(vectors, queries, 5).scores, rtol=2e-3)
    assert (hits.scores < 0).all()
    n_found = (search(index, clustered(3, 4, 3), 50).rows >= 0).sum(axis=1)
    assert (n_found == 40).all() or (name == "minilm-ivfpq" and n_found.min() >= 38)  # the fast scan passes over what scores worst of all


@pytest.mark.parametrize("name", [name for name in NAMES if name != "minilm-ivfpq"])
def test_a_corpus_of_one_passage(made: Made, name: str) -> None:
    hits = search(made(name, np.array([[1.0, -2.0, 0.5, 4.0]], dtype=np.float32)), np.array([[1, 1, 2, 0.25]], dtype=np.float32), 3)
    assert hits.rows.tolist() == [[0, -1, -1]]
    assert hits.scores[0, 0] == 1.0


@pytest.mark.parametrize(
    ("n", "dim", "reason"),
    [
        (40, 11, "the dimension 11 cannot be divided so: use ivf or int8"),
        (15, 8, "ivfpq is trained on at least 16 vectors, here are 15"),
    ],
)
def test_vectors_that_ivfpq_cannot_code_are_refused_and_leave_nothing(n: int, dim: int, reason: str, made: Made) -> None:
    with pytest.raises(InputError, match=reason):
        made("minilm-ivfpq", clustered(n, dim, 0))
    assert list(index_ref("made", "minilm-ivfpq").path.parent.glob("*")) == []


def test_ivfpq_is_not_opened_without_the_memory_that_it_takes(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.cpu.available_bytes", lambda: 899)
    with pytest.raises(InputError, match=r"takes 900 B of memory \(100 vectors × 9 bytes\), of which 899 B can be had"):
        made("minilm-ivfpq", clustered(100, 8, 0))


@pytest.mark.parametrize("name", NAMES)
def test_equal_scores_go_to_the_lower_row(made: Made, name: str) -> None:
    vectors = np.zeros((120, 8), dtype=np.float32)  # whole numbers: products are exact however they are summed
    vectors[:, 1] = 3
    vectors[20:80, 0] = 2  # equal vectors, far more than are asked for
    vectors[100, 0] = 5
    queries = np.repeat(np.array([[1, 0, 0, 0, 0, 0, 0, 0]], dtype=np.float32), 3, axis=0)
    hits = search(made(name, vectors), queries, 7, SearchParams(refine=20, ef_search=200))
    assert hits.rows.tolist() == [[100, 20, 21, 22, 23, 24, 25]] * 3


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("dim", [5, 64])
@pytest.mark.parametrize("name", QUANTIZED)
def test_rescoring_of_all_rows_is_exact_search_bit_for_bit(name: str, dim: int, stored: Stored, made: Made) -> None:
    vectors, queries = clustered(700, dim, 0), clustered(30, dim, 1)
    vectors[100:160] = vectors[100]  # ties go to the lower row
    index = made(name, vectors, [0, 13, 699], stored)
    exact = open_vector_index("made", ENCODER, open_store("made"))
    for k in (10, 697, 705):
        assert_same(index.search(queries, k, SearchParams(refine=71 if k == 10 else 1)), exact.search(queries, k))


@pytest.mark.parametrize("name", [name for name in STORED if name != "minilm-hnsw"])
def test_a_range_of_rows_has_the_numbers_and_scores_of_the_whole(large: VectorIndex, name: str) -> None:
    params = SearchParams(nprobe=64, refine=150)
    whole = large.search(QUERIES[:12], N, params)
    for rows in (range(300), range(690, 710), range(300, N)):
        hits = open_vector_index("made", name, open_store("made"), rows=rows).search(QUERIES[:12], K, params)
        for number in range(12):
            is_there = np.isin(whole.rows[number], rows)
            empty = (0, max(0, K - int(np.count_nonzero(is_there))))
            np.testing.assert_array_equal(hits.rows[number], np.pad(whole.rows[number][is_there][:K], empty, constant_values=-1))
            np.testing.assert_array_equal(hits.scores[number], np.pad(whole.scores[number][is_there][:K], empty, constant_values=-np.inf))


REFUSED: list[tuple[NDArray[np.float64], int, str]] = [
    (np.zeros((1, DIM - 1)), 3, rf"shape \(1, {DIM - 1}\) do not fit an index of dimension {DIM}"),
    (np.zeros(DIM), 3, rf"shape \({DIM},\)"),
    (np.vstack([np.zeros(DIM), np.full(DIM, np.nan)]), 3, "query vector 1 has components that are not finite"),
    (np.zeros((1, DIM)), 0, "k is 0"),
]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_searched_is_refused_and_no_queries_give_no_lines(large: VectorIndex, name: str) -> None:
    for queries, k, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            large.search(queries.astype(np.float32), k)
    search(large, np.empty((0, DIM), dtype=np.float32), 5)


@pytest.mark.parametrize("name", NAMES)
def test_threads_search_at_once(large: VectorIndex, name: str) -> None:
    alone = [search(large, QUERIES[first : first + 5], K) for first in range(0, 50, 5)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda first: large.search(QUERIES[first : first + 5], K), [*range(0, 50, 5)] * 4))
    for hits, expected in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(hits.rows, expected.rows)
        np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-5)


PARAMETERS = [
    ("minilm-ivf", "nprobe", 64),
    ("minilm-ivfpq", "nprobe", 64),
    ("minilm-ivfpq", "refine", 1_000),
    ("minilm-hnsw", "ef_search", 65_536),
    ("minilm-int8", "refine", 1_000),
    ("minilm-binary", "refine", 1_000),
]


def overridden(param: str, value: int) -> SearchParams:
    values: dict[str, Any] = {param: value}
    return SearchParams(**values)


@pytest.mark.parametrize(("name", "param", "largest"), [case for case in PARAMETERS if case[0] != "minilm-int8"])
def test_parameters_are_a_request_s_own(large: VectorIndex, name: str, param: str, largest: int) -> None:
    least, most = overridden(param, 1), EVERYTHING
    expected = [large.search(QUERIES, K, params) for params in (least, most)]
    truth = brute_force(VECTORS, QUERIES, K, MISSING)
    assert recall(expected[0], truth, K) < recall(expected[1], truth, K)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: large.search(QUERIES, K, (least, most)[number % 2]), range(12)))
    for number, hits in enumerate(found):
        np.testing.assert_array_equal(hits.rows, expected[number % 2].rows)


@pytest.mark.parametrize(("name", "param", "largest"), PARAMETERS)
def test_parameters_beyond_the_index_are_refused(large: VectorIndex, name: str, param: str, largest: int) -> None:
    search(large, QUERIES[:1], 3, overridden(param, largest))
    with pytest.raises(InputError, match=f"{param} {largest + 1:,}: for '{name}' it can be at most {largest:,}"):
        large.search(QUERIES, 3, overridden(param, largest + 1))


def test_processes_search_at_once(large_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    rows_of_hits = functools.partial(open_and_search, queries=QUERIES, k=K)
    here = [rows_of_hits(name) for name in STORED]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(rows_of_hits, STORED * 2)) == here * 2


_FORKS = """
import os, signal, sys
import numpy as np
from wikidx.corpora.build import open_store
from wikidx.indexer.build import open_vector_index
queries = np.load(sys.argv[1])
for name in sys.argv[2:]:
    index = open_vector_index("made", name, open_store("made"))
    if "faiss" in sys.modules:
        sys.modules["faiss"].omp_set_num_threads(3)
    expected = index.search(queries, 10).rows
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(int((index.search(queries, 10).rows != expected).any()))
    print(name, os.waitpid(child, 0)[1], "torch" in sys.modules)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_forked_processes_search_and_need_no_torch(large_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    np.save(tmp_path / "queries.npy", np.tile(QUERIES, (2, 1)))  # of which exact search makes use of threads
    command = [sys.executable, "-c", _FORKS, str(tmp_path / "queries.npy"), *STORED]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines() == [f"{name} 0 False" for name in STORED]


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built_is_listed_and_as_its_manifest_says(large_home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    manifest = index_ref("made", name).manifest(open_store("made").fingerprint)
    assert verify_files(index_ref("made", name).path, manifest) == []
    assert manifest.counts == {"rows": N, "vectors": N - len(MISSING), "dim": DIM, "missing": len(MISSING)}
    assert manifest.recipe.parameters["encoder"] == ENCODER
    assert set(STORED) == set(built_indexes("made"))

"""The contract of all vector indexes, exact search included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, corpus_of
from tests.indexer.made_vectors import ENCODER, brute_force, clustered, put_vectors
from wikidx.base.artifacts.manifest import verify_files
from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, ArtifactMissing, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams, VectorIndex, Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import built_indexes, index_ref
from wikidx.indexer.recall import recall

pytest.importorskip("faiss", reason="needs the extra 'dense'")

EXACT = ENCODER  # exact search goes by the encoder's name
NAMES = [EXACT, *(f"{ENCODER}-{kind}" for kind in VECTOR_INDEXES)]
N, DIM, K = 3000, 32, 20
MISSING = [0, 5, 700, 701, 2999]
EXHAUSTIVE = SearchParams(nprobe=64, refine=30, ef_search=3000)  # each index takes those that it knows
ALL_FOUND = dict.fromkeys(("minilm-ivf", "minilm-ivfpq", "minilm-hnsw", "minilm-binary"), EXHAUSTIVE)

Made = Callable[..., VectorIndex]


def passages(n: int) -> list[Passage]:
    return [Passage(str(number), f"Title {number}", f"Text {number}.") for number in range(n)]


def search(index: VectorIndex, queries: Vectors, k: int, params: SearchParams | None = None) -> Hits:
    """Search with the parameters of the index, and check invariants of the hits."""
    hits = index.search(queries, k, params or DEFAULT_PARAMS)
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


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Train with one thread: on a busy machine OpenMP's threads wait for each other most of the time."""
    import faiss

    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(n_threads)


@pytest.fixture(scope="module")
def large_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data home with a corpus of ``N`` passages and all indexes over clustered vectors, some of them missing."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder))
        build_store(corpus_of(passages(N)), StoreOptions())
        store = open_store("made")
        put_vectors(store, clustered(N, DIM, 0), missing=MISSING)
        for name in NAMES[1:]:
            build_index("made", name, store)
    return folder


@pytest.fixture
def large(large_home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> VectorIndex:
    """One index of ``large_home``, opened."""
    monkeypatch.setenv("IDX_HOME", str(large_home))
    return open_vector_index("made", name, open_store("made"))


@pytest.fixture
def made(build: Callable[..., PassageStore]) -> Made:
    """Build an index over vectors given, and open it."""

    def make(name: str, vectors: Vectors, missing: list[int] | None = None) -> VectorIndex:
        store = build(passages(len(vectors)))
        put_vectors(store, vectors, missing=missing or [])
        if name != EXACT:
            build_index("made", name, store)
        return open_vector_index("made", name, store)

    return make


QUERIES = clustered(50, DIM, 1)
VECTORS = clustered(N, DIM, 0)
# What each is off by, as a share of the largest product: rounding of float32 sums, of float16, or exact after rescoring
TOLERANCE = {name: 2e-3 if name in ("minilm-ivf", "minilm-hnsw") else 2e-6 for name in NAMES}
# Recall at 10 with the default parameters, if not 1; brute force itself loses about as much to ties within the rounding of float16
RECALL = {
    "minilm-ivf": 0.98,
    "minilm-ivfpq": 0.97,
    "minilm-hnsw": 0.98,
    "minilm-binary": 0.98,
}


@pytest.mark.parametrize("name", NAMES)
def test_hits_are_those_of_brute_force(large: VectorIndex, name: str) -> None:
    expected = brute_force(VECTORS, QUERIES, K, MISSING)
    hits = search(large, QUERIES, K)
    assert recall(hits, expected, 10) >= RECALL.get(name, 1.0)
    products = QUERIES @ VECTORS.T
    atol = TOLERANCE[name] * float(np.abs(products).max())
    np.testing.assert_allclose(hits.scores, np.take_along_axis(products, hits.rows, axis=1), atol=atol)
    complete = search(large, QUERIES, K, ALL_FOUND.get(name))
    np.testing.assert_allclose(complete.scores, expected.scores, atol=atol)
    assert len(large) == N
    assert large.dim == DIM


@pytest.mark.parametrize("name", NAMES)
def test_missing_rows_are_never_found_and_shift_no_other(large: VectorIndex, name: str) -> None:
    there = np.setdiff1d(np.arange(N), MISSING)[::37]
    queries = (VECTORS[there] * (100 / np.linalg.norm(VECTORS[there], axis=1, keepdims=True))).astype(np.float32)
    expected = brute_force(VECTORS, queries, 1, MISSING)
    hits = search(large, queries, 5, ALL_FOUND.get(name))
    assert (hits.rows[:, 0] == expected.rows[:, 0]).mean() > 0.99
    everything = search(large, QUERIES[:2], N, ALL_FOUND.get(name))
    assert not np.isin(everything.rows, MISSING).any()
    assert (everything.rows >= 0).sum(axis=1).tolist() == [N - len(MISSING)] * 2


@pytest.mark.parametrize("name", NAMES)
def test_more_results_than_rows_leave_places_empty(made: Made, name: str) -> None:
    vectors = clustered(30, 8, 2)
    hits = search(made(name, vectors), clustered(3, 8, 3), 50)
    n_found = (hits.rows >= 0).sum(axis=1)
    assert (n_found == 30).all() or (name == "minilm-ivfpq" and n_found.min() >= 28)  # the fast scan passes over what scores worst of all


@pytest.mark.parametrize("name", [name for name in NAMES if name != "minilm-ivfpq"])
def test_a_corpus_of_one_passage(made: Made, name: str) -> None:
    hits = search(made(name, np.array([[1.0, -2.0, 0.5, 4.0]], dtype=np.float32)), np.array([[1, 1, 2, 0.25]], dtype=np.float32), 3)
    assert hits.rows.tolist() == [[0, -1, -1]]
    assert hits.scores[0, 0] == 1.0


def test_ivfpq_is_refused_where_its_codes_would_tell_nothing(build: Callable[..., PassageStore]) -> None:
    store = build(passages(40))
    put_vectors(store, clustered(40, 11, 0))
    with pytest.raises(InputError, match="the dimension 11 cannot be divided so: use ivf or int8"):
        build_index("made", "minilm-ivfpq", store)


def test_ivfpq_is_not_opened_without_the_memory_that_it_takes(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.cpu.available_bytes", lambda: 899)
    with pytest.raises(InputError, match=r"takes 900 B of memory \(100 vectors × 9 bytes\), of which 899 B can be had"):
        made("minilm-ivfpq", clustered(100, 8, 0))


def test_too_few_vectors_to_train_on_are_refused_and_leave_nothing(build: Callable[..., PassageStore]) -> None:
    store = build(passages(15))
    put_vectors(store, clustered(15, 8, 0))
    with pytest.raises(InputError, match="ivfpq is trained on at least 16 vectors, here are 15"):
        build_index("made", "minilm-ivfpq", store)
    assert list(index_ref("made", "minilm-ivfpq").path.parent.glob("*")) == []


@pytest.mark.parametrize("name", NAMES)
def test_equal_scores_go_to_the_lower_row(made: Made, name: str) -> None:
    vectors = np.zeros((120, 8), dtype=np.float32)  # whole numbers: products are exact however they are summed
    vectors[:, 1] = 3
    vectors[20:80, 0] = 2  # equal vectors, far more than are asked for
    vectors[100, 0] = 5
    index = made(name, vectors)
    queries = np.repeat(np.array([[1, 0, 0, 0, 0, 0, 0, 0]], dtype=np.float32), 3, axis=0)
    assert search(index, queries, 7, SearchParams(refine=20, ef_search=200)).rows.tolist() == [[100, 20, 21, 22, 23, 24, 25]] * 3


@pytest.mark.parametrize("name", NAMES)
def test_negative_products_are_found(made: Made, name: str) -> None:
    vectors = -np.abs(clustered(40, 4, 5))
    queries = np.ones((1, 4), dtype=np.float32)
    params = {"minilm-ivfpq": SearchParams(nprobe=1, refine=10)}.get(name)
    hits = search(made(name, vectors), queries, 5, params)
    np.testing.assert_allclose(hits.scores, brute_force(vectors, queries, 5).scores, rtol=2e-3)
    assert (hits.scores < 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (np.zeros((1, DIM - 1), dtype=np.float32), rf"shape \(1, {DIM - 1}\) do not fit an index of dimension {DIM}"),
        (np.zeros(DIM, dtype=np.float32), rf"shape \({DIM},\)"),
        (np.vstack([np.zeros(DIM), np.full(DIM, np.nan)]).astype(np.float32), "query vector 1 has components that are not finite"),
        (np.full((1, DIM), np.inf, dtype=np.float32), "query vector 0"),
    ],
    ids=["dimension", "one vector", "nan", "inf"],
)
def test_queries_that_do_not_fit_are_refused(large: VectorIndex, name: str, queries: Vectors, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        large.search(queries, 3)


@pytest.mark.parametrize("name", NAMES)
def test_no_queries_and_no_results(large: VectorIndex, name: str) -> None:
    assert search(large, np.empty((0, DIM), dtype=np.float32), 5).rows.shape == (0, 5)
    with pytest.raises(ValueError, match="k is 0"):
        large.search(QUERIES, 0)


@pytest.mark.parametrize("name", NAMES)
def test_threads_search_at_once(large: VectorIndex, name: str) -> None:
    alone = [search(large, QUERIES[first : first + 5], K) for first in range(0, 50, 5)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda first: large.search(QUERIES[first : first + 5], K), [*range(0, 50, 5)] * 4))
    for hits, expected in zip(together, alone * 4, strict=True):
        np.testing.assert_array_equal(hits.rows, expected.rows)
        np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name in ALL_FOUND])
def test_parameters_are_a_request_s_own(large: VectorIndex, name: str) -> None:
    param = {"minilm-hnsw": "ef_search", "minilm-binary": "refine"}.get(name, "nprobe")
    least, most = SearchParams(**{param: 1}), ALL_FOUND[name]
    expected = [large.search(QUERIES, K, params) for params in (least, most)]
    truth = brute_force(VECTORS, QUERIES, K, MISSING)
    assert recall(expected[0], truth, K) < recall(expected[1], truth, K)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: large.search(QUERIES, K, (least, most)[number % 2]), range(12)))
    for number, hits in enumerate(found):
        np.testing.assert_array_equal(hits.rows, expected[number % 2].rows)


def _rows_of_hits(name: str) -> list[list[int]]:
    rows: list[list[int]] = open_vector_index("made", name, open_store("made")).search(QUERIES, K).rows.tolist()
    return rows


def test_processes_search_at_once(large_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    here = [_rows_of_hits(name) for name in NAMES]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_rows_of_hits, NAMES * 2)) == here * 2


_FORKS = """
import os, signal, sys
import faiss
import numpy as np
from wikidx.corpora.build import open_store
from wikidx.indexer.build import open_vector_index
faiss.omp_set_num_threads(3)
queries = np.load(sys.argv[1])
for name in sys.argv[2:]:
    index = open_vector_index("made", name, open_store("made"))
    expected = index.search(queries, 10).rows
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(int((index.search(queries, 10).rows != expected).any()))
    print(name, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_forked_processes_search(large_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    np.save(tmp_path / "queries.npy", QUERIES)
    command = [sys.executable, "-c", _FORKS, str(tmp_path / "queries.npy"), *NAMES]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines() == [f"{name} 0" for name in NAMES]


@pytest.mark.parametrize("name", NAMES[1:])
def test_what_is_built_is_listed_and_as_its_manifest_says(large_home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("IDX_HOME", str(large_home))
    manifest = index_ref("made", name).manifest(open_store("made").fingerprint)
    assert verify_files(index_ref("made", name).path, manifest) == []
    assert manifest.counts == {"rows": N, "vectors": N - len(MISSING), "dim": DIM, "missing": len(MISSING)}
    assert manifest.recipe.parameters["encoder"] == ENCODER
    assert set(NAMES) == set(built_indexes("made"))


@pytest.fixture
def small(build: Callable[..., PassageStore], name: str) -> PassageStore:
    """A corpus of 600 passages with an index over its vectors."""
    store = build(passages(600))
    put_vectors(store, clustered(600, 8, 0))
    build_index("made", name, store)
    return store


@pytest.mark.parametrize("name", NAMES[1:])
def test_an_index_of_other_passages_or_vectors_is_refused(small: PassageStore, name: str, build: Callable[..., PassageStore]) -> None:
    kind = name.removeprefix("minilm-")
    put_vectors(small, clustered(600, 8, 7))
    with pytest.raises(
        ArtifactMismatch, match=rf"from other vectors of 'minilm' .*run 'idx build made --encoder minilm --index {kind} --force'"
    ):
        open_vector_index("made", name, small)
    with pytest.raises(ArtifactMismatch, match="from other vectors"):
        build_index("made", name, small)
    build_index("made", name, small, force=True)
    open_vector_index("made", name, small)
    other = build(passages(599))
    with pytest.raises(ArtifactMismatch, match="was built over other passages"):
        open_vector_index("made", name, other)


@pytest.mark.parametrize("name", NAMES[1:])
def test_files_that_were_cut_or_overwritten_are_corrupt(small: PassageStore, name: str) -> None:
    path = index_ref("made", name).path / ("vectors.npy" if name in ("minilm-int8", "minilm-binary") else "index.faiss")
    n_bytes = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"x" * 60)
    with pytest.raises(ArtifactCorrupt, match=rf"{path.name} (is no index that FAISS can read|or its checksums in sums are corrupt)"):
        open_vector_index("made", name, small).search(clustered(1, 8, 1), 1)
    os.truncate(path, n_bytes // 2)
    with pytest.raises(ArtifactCorrupt, match=f"{path.name} has {n_bytes // 2:,} bytes instead of {n_bytes:,}"):
        open_vector_index("made", name, small)
    path.unlink()
    with pytest.raises(ArtifactCorrupt, match=f"{path.name} is missing"):
        open_vector_index("made", name, small)


class Killed(BaseException):
    """A build is stopped here."""


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_build_that_was_stopped_resumes(build: Callable[..., PassageStore], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("vectors.corpus_vectors", "indexes.faiss.ivf", "indexes.quantized"):
        monkeypatch.setattr(f"wikidx.indexer.{module}.BATCH_ROWS", 256)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.ivf._SHARD_BATCHES", 1)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.hnsw._SAVE_EVERY_S", 0.0)
    store, vectors, queries = build(passages(2000)), clustered(2000, 8, 0), clustered(20, 8, 1)
    put_vectors(store, vectors)

    def stopped_at(row: int) -> tuple[dict[str, int], list[int]]:
        """Stop the build once this many rows are done; return the files left, with their times, and the progress reports."""
        reports = list[int]()

        def stop(done: int, total: int | None) -> None:
            reports.append(done)
            if done >= row:
                raise Killed

        with pytest.raises(Killed):
            build_index("made", name, store, progress=stop)
        with pytest.raises(ArtifactMissing):
            open_vector_index("made", name, store)
        pieces = sorted(index_ref("made", name).path.parent.rglob("intermediate/*"))
        return {file.name: file.stat().st_mtime_ns for file in pieces}, reports

    first, _ = stopped_at(1024)
    second, reports = stopped_at(1792)
    if name in ("minilm-ivf", "minilm-ivfpq"):
        assert list(first) == [*(f"shard-0000{number}.bin" for number in range(3)), "trained.faiss"]
        assert len(second) == 7
        assert {file: second[file] for file in first} == first  # not made again
    elif name == "minilm-hnsw":
        assert list(first) == list(second) == ["graph.faiss"]
        assert reports[0] == 1024
    elif name in ("minilm-int8", "minilm-binary"):
        assert list(first) == list(second) == ["finished"]
        assert reports == [1280, 1536, 1792]
    found = []
    for force in (False, True):  # gone on with, and begun again
        build_index("made", name, store, force=force)
        found.append(recall(open_vector_index("made", name, store).search(queries, 10), brute_force(vectors, queries, 10), 10))
    assert found[0] == pytest.approx(found[1], abs=0.005)


@pytest.mark.parametrize("name", NAMES[1:])
def test_without_its_vectors_an_index_is_searched_but_rescores_nothing(small: PassageStore, name: str) -> None:
    shutil.rmtree(index_ref("made", ENCODER).path)
    index = open_vector_index("made", name, small)
    queries = clustered(2, 8, 1)
    if "refine" in index.parameters:
        with pytest.raises(InputError, match="rescores candidates from the vectors"):
            index.search(queries, 3)
    assert (search(index, queries, 3, SearchParams(refine=0)).rows >= 0).all()

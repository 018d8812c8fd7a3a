"""The files that are written for FAISS, its training, and what goes wrong with them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.indexer.made_vectors import NOTHING, brute_force, clustered, sealed
from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.manifest import Manifest, Recipe
from wikidx.base.errors import ArtifactCorrupt, InputError, StagingCorrupt
from wikidx.base.registry import load
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.base import SearchParams, Stored, Vectors
from wikidx.indexer.indexes.approximate import ApproximateIndex
from wikidx.indexer.indexes.faiss.inverted_lists import ListShard
from wikidx.indexer.indexes.faiss.ivf import n_lists, n_subquantizers
from wikidx.indexer.indexes.faiss.library import INDEX_FILE, faiss_errors, load_faiss
from wikidx.indexer.indexes.kinds import IndexBuild, IndexKind, OpenOptions, Size
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors, positions_to_rows
from wikidx.indexer.vectors.file import VECTORS, VectorFile

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")

N, DIM = 1500, 16


@pytest.fixture(autouse=True)
def one_thread_and_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    faiss.omp_set_num_threads(1)
    for module in ("vectors.corpus_vectors", "indexes.faiss.ivf"):
        monkeypatch.setattr(f"wikidx.indexer.{module}.BATCH_ROWS", 200)


def corpus_vectors(folder: Path, vectors: Vectors, *, stored: Stored = "float32", missing: Sequence[int] = ()) -> CorpusVectors:
    folder.mkdir()
    VectorFile(folder, len(vectors), stored).write(range(len(vectors)), vectors)
    array = CheckedFiles(folder, sealed(folder, NOTHING))[VECTORS].array(stored, vectors.shape)
    return CorpusVectors(array, stored, np.array(missing, dtype=np.int64), "identity")


def kind_of(name: str) -> IndexKind[CorpusVectors, ApproximateIndex]:
    kind: IndexKind[CorpusVectors, ApproximateIndex] = load("index", name, VECTOR_INDEXES)
    return kind


def write(name: str, vectors: CorpusVectors, folder: Path) -> Manifest:
    """Write an index and return a manifest for it."""
    kind = kind_of(name)
    (folder / INTERMEDIATE).mkdir(parents=True, exist_ok=True)
    parameters = kind.parameters(Size(len(vectors), vectors.dim))
    counts = kind.write(IndexBuild(vectors, parameters, folder, lambda done, total: None))
    recipe = Recipe(kind=name, format_version=1, parameters=parameters, inputs={})
    return sealed(folder, dataclasses.replace(NOTHING, recipe=recipe, counts=counts))


def faiss_file(index: Any, folder: Path) -> bytes:  # noqa: ANN401 - FAISS has no types
    faiss.write_index(index, str(folder / "reference.faiss"))
    return (folder / "reference.faiss").read_bytes()


@pytest.mark.parametrize("n", [N, 60, 16])  # so few rows leave most lists empty
@pytest.mark.parametrize("name", ["ivf", "ivfpq"])
def test_a_file_of_lists_is_the_one_faiss_writes(name: str, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.inverted_lists._RANGE_BYTES", 5_000)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.ivf._SHARD_BATCHES", 2)
    vectors = clustered(N, DIM, 0)
    write(name, corpus_vectors(tmp_path / "all", vectors), tmp_path / "index")
    trained = tmp_path / "index" / INTERMEDIATE / "trained.faiss"
    (tmp_path / "some" / INTERMEDIATE).mkdir(parents=True)
    (tmp_path / "some" / INTERMEDIATE / trained.name).write_bytes(trained.read_bytes())
    write(name, corpus_vectors(tmp_path / "few", vectors[:n]), tmp_path / "some")
    reference = faiss.read_index(str(trained))
    reference.add(vectors[:n])
    assert reference.nlist == n_lists(N) == 32
    assert reference.metric_type == reference.quantizer.metric_type == faiss.METRIC_INNER_PRODUCT
    lengths = np.linalg.norm(reference.quantizer.reconstruct_n(0, 32), axis=1)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-5)  # spherical k-means
    assert (tmp_path / "some" / INDEX_FILE).read_bytes() == faiss_file(reference, tmp_path)


def test_half_a_million_components_too_large_for_float16_are_named(tmp_path: Path) -> None:
    values = clustered(N, DIM, 0)
    values[321, 3] = 1e6
    vectors = corpus_vectors(tmp_path / "vectors", values)
    for name in ("ivf", "hnsw"):
        with pytest.raises(InputError, match="of row 321 has a component too large for float16: only --index int8, binary and ivfpq"):
            write(name, vectors, tmp_path / name)
    write("int8", vectors, tmp_path / "int8")


def opened(name: str, folder: Path, manifest: Manifest, vectors: CorpusVectors | None = None) -> Any:  # noqa: ANN401
    return kind_of(name).open(folder, manifest, OpenOptions(name=f"e-{name}", encoder="e", vectors=vectors))


def test_a_file_that_is_not_as_its_manifest_says_is_corrupt(tmp_path: Path) -> None:
    manifest = write("ivf", corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0)), tmp_path / "index")
    index = faiss.read_index(str(tmp_path / "index" / INDEX_FILE))
    index.remove_ids(np.array([3]))
    faiss.write_index(index, str(tmp_path / "index" / INDEX_FILE))
    with pytest.raises(ArtifactCorrupt, match="holds 1,499 vectors of dimension 16 .* where its manifest says 1,500, 16"):
        opened("ivf", tmp_path / "index", sealed(tmp_path / "index", manifest))


def test_a_corrupt_length_that_asks_for_any_memory_is_corruption() -> None:
    with pytest.raises(ArtifactCorrupt, match="index.faiss is no index that FAISS can read"), faiss_errors(Path("index.faiss")):
        raise MemoryError("std::bad_alloc")


def test_an_index_that_was_written_in_part_is_reported(tmp_path: Path) -> None:
    command = (  # so few bytes are written when the file is closed, whose error FAISS passes over
        "import faiss, numpy, resource, sys; from pathlib import Path; from wikidx.indexer.indexes.faiss.library import write_index; "
        "index = faiss.IndexFlatIP(16); index.add(numpy.ones((10, 16), dtype='f')); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); write_index(Path(sys.argv[1]), index)"
    )
    ran = subprocess.run([sys.executable, "-c", command, str(tmp_path / "a")], capture_output=True, text=True, check=False, cwd=ROOT)
    assert f"OSError: [Errno 27] File too large: '{tmp_path / 'a'}'" in ran.stderr
    assert (tmp_path / "a").stat().st_size == 100


def test_a_shard_has_its_entries_by_list_and_is_known_if_cut(tmp_path: Path) -> None:
    shard = ListShard(tmp_path / "shard", 3, 2)
    shard.write(np.array([2, 0, 2, 0]), np.array([10, 11, 12, 13]), np.arange(8, dtype=np.uint8).reshape(4, 2))
    ends = shard.ends()
    assert ends.tolist() == [2, 2, 4]
    assert [part.tolist() for part in shard.entries(ends, 0, 3)] == [[0, 0, 2, 2], [11, 13, 10, 12], [[2, 3], [6, 7], [0, 1], [4, 5]]]
    assert [part.tolist() for part in shard.entries(ends, 1, 3)] == [[2, 2], [10, 12], [[0, 1], [4, 5]]]
    content = shard.path.read_bytes()
    for n_bytes in (len(content) - 1, 10, 0):
        shard.path.write_bytes(content[:n_bytes])
        with pytest.raises(StagingCorrupt, match=f"has {n_bytes} bytes, which is no shard"):
            shard.ends()


def test_lists_go_by_the_square_root_and_subquantizers_divide_the_dimension() -> None:
    assert [n_lists(n) for n in (1, 77, 78, 784, 100_000, 284_295, 21_015_324)] == [1, 1, 2, 16, 1024, 2048, 16_384]
    assert [n_subquantizers(dim) for dim in (768, 384, 10, 7, 3, 1)] == [192, 96, 2, 1, 1, 1]


def test_the_sample_is_bounded_whatever_the_size() -> None:
    for name in ("ivf", "ivfpq", "int8", "binary"):
        assert int(kind_of(name).parameters(Size(10**9, 768)).get("sample") or 0) * 768 * 4 <= 2 << 30
        assert kind_of(name).estimate(Size(10**9, 768)).memory_bytes < 4e9


def test_a_sample_is_drawn_from_the_rows_that_have_a_vector(tmp_path: Path) -> None:
    values = np.arange(N, dtype=np.float32)[:, np.newaxis] * np.ones(2, dtype=np.float32)
    missing = [0, 3, 4, 1000]
    vectors = corpus_vectors(tmp_path / "vectors", values, missing=missing)
    rows = vectors.sample(900, seed=1)[:, 0].astype(np.int64)
    assert len(rows) == 900
    assert (np.diff(rows) > 0).all()
    assert not np.isin(missing, rows).any()
    np.testing.assert_array_equal(vectors.sample(900, seed=1)[:, 0], rows)
    assert (vectors.sample(900, seed=2)[:, 0] != rows).any()
    np.testing.assert_array_equal(vectors.sample(10**6, seed=1)[:, 0], np.setdiff1d(np.arange(N), missing))
    np.testing.assert_array_equal(positions_to_rows(np.array([[-1, 0, 1, 2]]), vectors.missing), [[-1, 1, 2, 5]])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"nprobe": 0}, "nprobe is 0: it should be greater than or equal to 1"),
        ({"ef_search": 0}, "ef_search is 0: it should be greater than or equal to 1"),
        ({"refine": -1}, "refine is -1: it should be greater than or equal to 0"),
        *(({"nprobe": value}, "nprobe is .*: it should be a valid integer") for value in (True, 3.0, "3", np.float32(3))),
    ],
    ids=str,
)
def test_parameters_are_whole_numbers_in_their_range(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchParams(**params)


def test_ties_are_searched_for_query_by_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = clustered(N, DIM, 0).astype(np.float16).astype(np.float32)  # as the index has them
    values[100:1400] = values[100]
    vectors = corpus_vectors(tmp_path / "vectors", values)
    index = opened("ivf", tmp_path / "index", write("ivf", vectors, tmp_path / "index"))  # all its lists are probed
    found, asked = index._search, list[tuple[int, int]]()  # number of queries, and of places, that FAISS is asked for

    def search(queries: Vectors, k: int, settings: Any, scope: Any) -> Any:  # noqa: ANN401
        asked.append((len(queries), k))
        return found(queries, k, settings, scope)

    index._search = search
    queries = np.vstack([clustered(30, DIM, 1), 100 * values[100:101]])
    hits = index.search(queries, 5)
    np.testing.assert_array_equal(hits.rows[-1], range(100, 105))
    np.testing.assert_allclose(hits.scores, brute_force(values, queries, 5).scores, rtol=1e-5)
    assert (asked[0], asked[-1]) == ((31, 6), (1, N))
    assert sum(n for n, k in asked if k > 500) <= 4  # those whose best are the equal vectors
    asked.clear()
    monkeypatch.setattr("wikidx.indexer.indexes.approximate._MOST_TIED", 300)
    for k in (5, 299, 400):
        rows = index.search(queries[-1:], k).rows[0]
        assert len(set(rows.tolist()) & set(range(100, 1400))) == k
    assert [k for _, k in asked] == [6, 24, 96, 300, 300, 401]


def test_candidates_are_rescored_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0))
    index = opened("ivfpq", tmp_path / "index", write("ivfpq", vectors, tmp_path / "index"), vectors)
    queries, params = clustered(40, DIM, 1), SearchParams(nprobe=32, refine=20)
    expected = index.search(queries, 10, params)
    monkeypatch.setattr("wikidx.indexer.indexes.approximate._RESULTS_AT_ONCE", 7 * 200)
    monkeypatch.setattr("wikidx.indexer.vectors.corpus_vectors._CANDIDATES_AT_ONCE", 90)  # not even those of one query
    found = index.search(queries, 10, params)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_faiss_is_imported_where_it_is_used_and_set_up_once() -> None:
    assert load_faiss().cvar.distance_compute_blas_threshold == 2
    command = "import sys, wikidx.retrievers.opening, wikidx.indexer.planning; print('faiss' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "False\n"

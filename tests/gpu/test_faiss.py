"""FAISS's inverted files: on a GPU against those on the CPU; without a GPU, those on the CPU against exact search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.made import build_made_corpus
from tests.gpu.comparing import failed, sized
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import build_checked
from wikidx.base.artifacts.manifest import Recipe
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import SearchParams, Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, VectorFile
from wikidx.runtimes.cli.check_gpu import Difference

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense' or 'gpu'")

_ENCODER = "minilm"  # nothing is encoded: only its name is used
_N_CENTRES = 64
_GPU_ALLOWED = {"ivf": 1e-3, "ivfpq": 1e-2}  # share of rows that are not those of the CPU
_CPU_ALLOWED = {"ivf": 1e-3, "ivfpq": 0.2}  # share of the true rows that are not found when all lists are searched


@pytest.mark.parametrize("kind", ["ivf", "ivfpq"])
def test_faiss(kind: str, device: str) -> None:
    n_rows, dim, n_queries, k = sized(device, (200_000, 96, 256, 100), (2_000, 16, 32, 10))
    build_made_corpus(n_rows, 2)
    store, name = open_store("made"), f"{_ENCODER}-{kind}"
    queries = made_vectors(n_queries, dim, 2)
    put_vectors(store, made_vectors(n_rows, dim, 1))
    n_lists = int(build_index("made", name, store).recipe.parameters["lists"] or 0)
    exact = open_vector_index("made", _ENCODER, store).search(queries, k).rows
    on_cpu = open_vector_index("made", name, store)
    every = on_cpu.search(queries, k, SearchParams(nprobe=n_lists)).rows
    compared = [Difference(f"{kind} on the CPU, all {n_lists} lists", missing_share(every, exact), _CPU_ALLOWED[kind])]
    if device != "cpu":
        if not hasattr(faiss, "StandardGpuResources"):
            pytest.skip("this FAISS has no GPU")
        rows = open_vector_index("made", name, store, device=device).search(queries, k).rows
        compared.append(Difference(f"{kind} on the GPU", missing_share(rows, on_cpu.search(queries, k).rows), _GPU_ALLOWED[kind]))
    assert failed(compared) == []


def missing_share(rows: Rows, expected: Rows) -> float:
    """Return the share of expected rows that are not among the rows of the same query."""
    return float(np.mean([1 - np.isin(one, other).mean() for one, other in zip(expected, rows, strict=True)]))


def made_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return vectors around some centres, the same ones for every seed: lists tell them apart."""
    centres = np.random.default_rng(0).standard_normal((_N_CENTRES, dim), dtype=np.float32)
    generator = np.random.default_rng(seed)
    return centres[generator.integers(0, _N_CENTRES, n)] + np.float32(0.6) * generator.standard_normal((n, dim), dtype=np.float32)


def put_vectors(store: PassageStore, vectors: Vectors) -> None:
    """Store vectors as those of the encoder over the made corpus."""

    def write(staging: Path) -> BuildResult:
        file = VectorFile(staging, len(store), "float16")
        file.write(range(len(store)), vectors)
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": vectors.shape[1]})

    parameters = {"encoder": _ENCODER, "origin": "imported", "dtype": "float16"}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs={"passages": store.fingerprint})
    build_checked(index_ref("made", _ENCODER).path, ArtifactSpec(recipe=recipe, sources={}, find_existing=lambda: None, write=write))

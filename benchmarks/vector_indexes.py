"""Build time, size, opening time and recall of each kind of vector index, with default settings.

    python -m benchmarks.vector_indexes                                   # 1,000,000 x 768 vectors of float16
    python -m benchmarks.vector_indexes --kinds hnsw --vectors 100000     # a graph takes hours for a million
    python -m benchmarks.vector_indexes --vectors-from V.npy --queries-from Q.npy   # an encoder's vectors, and those of queries

Vectors are synthetic, if none are given: a thousand centres with noise, which lists and graphs can separate as they do real ones. Each step
runs in its own process. "peak RSS" is the build's peak memory, including reclaimable pages of mapped files; "own" is the memory (RssAnon)
that opening and searching added to the process. "recall@10" is the share of exact search's first ten rows that the kind returns at its
defaults, for synthetic queries in batches of 32, whose speed is given by time and by processor time; "p50" is the time of one alone. The
kind "exact" is exact search itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.engines.kinds import peak_bytes
from benchmarks.report import Figure, environment, print_table, seconds_of
from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.manifest import Manifest, Parameters, Recipe
from wikidx.base.artifacts.pages import build_checked
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.store import PassageStore
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.base import Stored, Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, VectorFile

EXACT = "exact"
_NAME, _ENCODER = "measured", "minilm"  # nothing is encoded: only the encoder's name is used
_CENTRES, _NOISE = 1000, 0.9
_QUERIES, _K, _BATCH, _ALONE = 512, 10, 32, 100


def made_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return n vectors of length 1 around centres that are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((_CENTRES, dim), dtype=np.float32)
    rng = np.random.default_rng((1, seed))
    vectors: Vectors = centres[rng.integers(0, _CENTRES, n)] + _NOISE * rng.standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def put_passages(n: int) -> PassageStore:
    """Create a corpus of n short passages."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(f'{{"id": "{number}", "title": "", "text": "{number}"}}\n' for number in range(n))
        file.flush()
        build_store(custom_corpus(Path(file.name), _NAME, ReadOptions()), StoreOptions())
    return open_store(_NAME)


def put_vectors(corpus: str, store: PassageStore, encoder: str, dim: int, given: Vectors | None = None) -> None:
    """Put vectors in place of an encoder's over a corpus: given ones, or made ones, which are stored as float16."""
    stored: Stored = "float16" if given is None else "float32"

    def write(staging: Path) -> BuildResult:
        file = VectorFile(staging, len(store), stored)
        for rows in file.ranges():
            file.write(rows, made_vectors(len(rows), dim, rows.start) if given is None else given[rows.start : rows.stop])
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": file.dim(), "missing": 0})

    parameters: Parameters = {"encoder": encoder, "origin": "imported", "dtype": stored}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs={"passages": store.fingerprint})
    build_checked(index_ref(corpus, encoder).path, ArtifactSpec(recipe=recipe, sources={}, find_existing=lambda: None, write=write))


def measure_build(kind: str) -> dict[str, Figure]:
    """Build an index of one kind in this process."""
    started = time.perf_counter()
    manifest = build_index(_NAME, _index(kind), open_store(_NAME))
    seconds = time.perf_counter() - started
    n_bytes = _bytes_of(manifest)
    return {
        "vectors": manifest.count("rows"),
        "dim": manifest.count("dim"),
        "kind": kind,
        "build s": seconds,
        "peak RSS MB": peak_bytes() / 1e6,
        "disk MB": n_bytes / 1e6,
    }


def _index(kind: str) -> str:
    return _ENCODER if kind == EXACT else f"{_ENCODER}-{kind}"


def measure_search(kind: str, queries_from: str | None = None) -> dict[str, Figure]:
    """Open an index in this process, search it, and compare its results with exact search."""
    store = open_store(_NAME)
    before, started = _own_megabytes(), time.perf_counter()
    index = open_vector_index(_NAME, _index(kind), store)
    opened = time.perf_counter() - started
    queries = made_vectors(_QUERIES, index.dim, -1 % 2**32) if queries_from is None else np.load(queries_from)
    found = np.concatenate([index.search(batch, _K).rows for batch in _batches(queries)])
    started, started_cpu = time.perf_counter(), time.process_time()
    for batch in _batches(queries):
        index.search(batch, _K)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    alone = [seconds_of(partial(index.search, queries[number : number + 1], _K)) for number in range(_ALONE)]
    own = _own_megabytes() - before
    exact = open_vector_index(_NAME, _ENCODER, store).search(queries, _K).rows
    same = [len(set(mine) & set(best)) for mine, best in zip(found.tolist(), exact.tolist(), strict=True)]
    speeds = {"queries/s": len(queries) / seconds, "queries/CPU s": len(queries) / cpu_seconds, "p50 ms": 1e3 * statistics.median(alone)}
    return {"open s": opened, "own MB": own, **speeds, f"recall@{_K}": sum(same) / exact.size}


def _batches(queries: Vectors) -> Iterator[Vectors]:
    for first in range(0, len(queries), _BATCH):
        yield queries[first : first + _BATCH]


def _bytes_of(manifest: Manifest) -> int:
    return sum(record.n_bytes for record in manifest.files.values())


def _own_megabytes() -> float:
    """Return the private memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def _in_process(step: str, *arguments: str) -> dict[str, Figure]:
    command = [sys.executable, "-m", "benchmarks.vector_indexes", "--step", step, *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Figure] = json.loads(ran.stdout or "{}")
    return figures


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vector_indexes")
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--vectors-from", metavar="FILE.npy")
    parser.add_argument("--queries-from", metavar="FILE.npy")
    parser.add_argument("--kinds", nargs="+", default=[EXACT, *(kind for kind in VECTOR_INDEXES if kind != "hnsw")])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kept", action="store_true", help=argparse.SUPPRESS)  # the data home has the passages
    parser.add_argument("--step", choices=["vectors", "build", "search"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    given = ["--queries-from", options.queries_from] if options.queries_from else []
    if options.step == "vectors":
        vectors = np.load(options.vectors_from, mmap_mode="r") if options.vectors_from else None
        store = open_store(_NAME) if options.kept else put_passages(options.vectors if vectors is None else len(vectors))
        put_vectors(_NAME, store, _ENCODER, options.dim, vectors)
    elif options.step == "build":
        sys.stdout.write(json.dumps(measure_build(*options.kinds)))
    elif options.step:
        sys.stdout.write(json.dumps(measure_search(options.kinds[0], options.queries_from)))
    else:
        with tempfile.TemporaryDirectory() as home:
            os.environ["IDX_HOME"] = home
            given_vectors = ["--vectors-from", options.vectors_from] if options.vectors_from else []
            _in_process("vectors", "--vectors", str(options.vectors), "--dim", str(options.dim), *given_vectors)
            rows = [{**_in_process("build", "--kinds", kind), **_in_process("search", "--kinds", kind, *given)} for kind in options.kinds]
        print_table("Indexes over vectors", rows, environment("faiss-cpu", "numpy", "numba"), options.json)


if __name__ == "__main__":
    main()

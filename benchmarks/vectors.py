"""Speed of exact vector search on a CPU, compared with FAISS; ``idx check --gpu`` measures it on a GPU.

    python -m benchmarks.vectors                    # 284,295 × 384 and 100,000 × 768, compared with FAISS at its defaults and at its best
    python -m benchmarks.vectors --opening          # how long 1 GB takes to open, and how much memory it then takes

Vectors are random, of length 1. All engines take turns, batch by batch; figures are medians over the rounds, ratios medians of the
rounds' ratios. "faiss" is ``faiss.IndexFlatIP`` with its defaults, which searches query by query unless a batch is large; "best" is FAISS
set to multiply matrices (``distance_compute_blas_threshold`` 1), with the block size that is fastest for this batch ("block"). Ours are
shards on disk, mapped into memory.

"difference" is the largest relative difference of a score from the float64 product of the same vectors, over the sampled queries; "same
rows" the share of rows at the same rank as in float64.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Figure, environment, print_table, seconds_of
from wikidx.base.artifacts.manifest import FileRecord, Manifest, Recipe
from wikidx.base.artifacts.pages import write_sums
from wikidx.base.machine.threads import n_threads
from wikidx.indexer.base import Hits, Stored, Vectors
from wikidx.indexer.indexes.exact.index import open_exact
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, VectorFile

SIZES = ("284295x384", "100000x768")
BATCHES = (1, 8, 32, 128, 512, 1024)
_FAISS_BLOCKS = (1_024, 4_096, 16_384)  # vectors per block; 1,024 is the default
_ROWS_AT_ONCE = 16_384
_STORED: tuple[Stored, ...] = ("float32", "float16")
_OPENED_BYTES = 10**9

_OPENING = """
import json, sys, time
from pathlib import Path
from benchmarks.vectors import manifest_of, resident_bytes
from wikidx.indexer.indexes.exact.index import open_exact
folder, n_rows, dim, stored = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
before, started = resident_bytes(), time.perf_counter()
index = open_exact(folder, manifest_of(folder, n_rows, dim, stored), device="cpu")
print(json.dumps([time.perf_counter() - started, before, resident_bytes(), index.dim]))
"""


class Question(NamedTuple):
    """A search that all engines run."""

    queries: Vectors
    k: int


class Reference(NamedTuple):
    """Float64 products of some queries, given by their numbers, with all vectors: shape (some, n)."""

    numbers: list[int]
    products: NDArray[np.float64]


FaissSearch = Callable[[Question, int | None], object]
OwnSearches = Mapping[Stored, Callable[[Vectors, int], Hits]]


def unit_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return random vectors of length 1, float32."""
    vectors = np.random.default_rng(seed).standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def manifest_of(folder: Path, n_rows: int, dim: int, stored: str) -> Manifest:
    """Return the manifest of these vectors of a corpus in a folder."""
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters={"dtype": stored}, inputs={})
    files = {path.name: FileRecord(path.stat().st_size, "") for path in folder.iterdir() if path.is_file()}
    return Manifest(recipe=recipe, sources={}, fingerprint="", counts={"rows": n_rows, "dim": dim}, packages={}, files=files, created="")


@contextmanager
def write_vectors(vectors: Vectors, stored: Stored) -> Iterator[Path]:
    """Write vectors into a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = VectorFile(Path(folder), len(vectors), stored)
        for rows in file.ranges():
            file.write(rows, vectors[rows.start : rows.stop])
        write_sums(Path(folder))
        yield Path(folder)


def compare_faiss(size: tuple[int, int], batches: Sequence[int], k: int, rounds: int) -> list[dict[str, Figure]]:
    """Search the same vectors with all engines in turn; ``size`` is their number and their dimension."""
    vectors, queries = unit_vectors(*size, 0), unit_vectors(max(batches), size[1], 1)
    numbers = sorted({0, *(batch - 1 for batch in batches)})
    references = {stored: Reference(numbers, products_of(vectors, queries[numbers], stored)) for stored in _STORED}
    with write_vectors(vectors, "float32") as wide, write_vectors(vectors, "float16") as narrow:
        folders: dict[Stored, Path] = {"float32": wide, "float16": narrow}
        ours = {stored: open_exact(folder, manifest_of(folder, *size, stored), device="cpu").search for stored, folder in folders.items()}
        search = faiss_search(vectors)
        rows = []
        for batch in batches:
            question = Question(queries[:batch], min(k, size[0]))
            about: dict[str, Figure] = {"vectors": size[0], "dim": size[1], "batch": batch, "k": k}
            rows.append(about | time_engines(search, ours, question, rounds) | check_results(ours, question, references))
    return rows


def products_of(vectors: Vectors, queries: Vectors, stored: Stored) -> NDArray[np.float64]:
    """Return the float64 products of queries with the stored vectors, shape (Q, n)."""
    wide = queries.astype(np.float64)
    parts = (vectors[start : start + _ROWS_AT_ONCE] for start in range(0, len(vectors), _ROWS_AT_ONCE))
    return np.concatenate([wide @ part.astype(stored).astype(np.float64).T for part in parts], axis=1)


def faiss_search(vectors: Vectors) -> FaissSearch:
    """Return FAISS's search for a question, with matrix products over blocks of this many vectors, or, with None, its defaults."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    settings = faiss.cvar
    default = settings.distance_compute_blas_threshold, settings.distance_compute_blas_database_bs
    faiss.omp_set_num_threads(n_threads())

    def search(question: Question, block: int | None) -> object:
        threshold, size = default if block is None else (1, block)
        settings.distance_compute_blas_threshold, settings.distance_compute_blas_database_bs = threshold, size
        return index.search(*question)

    return search


def time_engines(search: FaissSearch, ours: OwnSearches, question: Question, rounds: int) -> dict[str, Figure]:
    """Time all engines for one batch."""
    tried = {block: min(seconds_of(partial(search, question, block)) for _ in range(2)) for block in _FAISS_BLOCKS}
    block = min(tried, key=lambda block: tried[block])
    engines: dict[str, Callable[[], object]] = {
        "faiss": partial(search, question, None),
        "best": partial(search, question, block),
        **{stored: partial(own, *question) for stored, own in ours.items()},
    }
    for work in engines.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, work in engines.items():
            seconds[name].append(seconds_of(work))
    rates = {name: len(question.queries) / statistics.median(values) for name, values in seconds.items()}
    return {
        "faiss q/s": rates["faiss"],
        "best q/s": rates["best"],
        "(block)": block,
        "idx q/s": rates["float32"],
        "idx float16 q/s": rates["float16"],
        "idx × faiss": ratio(seconds["faiss"], seconds["float32"]),
        "idx × best": ratio(seconds["best"], seconds["float32"]),
        "float16 × best": ratio(seconds["best"], seconds["float16"]),
        "float16 × float32": ratio(seconds["float32"], seconds["float16"]),
    }


def ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """Return the ratio of two times, the median over the rounds."""
    return statistics.median(one / other for one, other in zip(slower, faster, strict=True))


def check_results(ours: OwnSearches, question: Question, references: dict[Stored, Reference]) -> dict[str, Figure]:
    """Compare the results of the queries that have float64 products."""
    same, differences = [], []
    for stored, search in ours.items():
        hits = search(*question)
        for number, products in zip(references[stored].numbers, references[stored].products, strict=True):
            if number < len(question.queries):
                rows = np.argsort(-products, kind="stable")[: question.k]
                same.append(float((hits.rows[number] == rows).mean()))
                differences.append(float(np.abs(hits.scores[number] / products[rows] - 1).max()))
    return {"same rows %": 100 * statistics.mean(same), "difference": max(differences)}


def measure_opening(n_bytes: int, dim: int) -> list[dict[str, Figure]]:
    """Open vectors of this many bytes, each in a fresh process."""
    rows: list[dict[str, Figure]] = []
    for stored in _STORED:
        n_rows = n_bytes // (dim * np.dtype(stored).itemsize)
        with write_vectors(unit_vectors(n_rows, dim, 0), stored) as folder:
            command = [sys.executable, "-c", _OPENING, str(folder), str(n_rows), str(dim), stored]
            found = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5)]
        seconds, before, after, _ = zip(*found, strict=True)
        rows.append(
            {
                "stored": stored,
                "vectors": n_rows,
                "dim": dim,
                "GB": n_bytes / 1e9,
                "open s (median)": statistics.median(seconds),
                "(slowest)": max(seconds),
                "RSS MB": statistics.median(after) / 1e6,
                "(before)": statistics.median(before) / 1e6,
            }
        )
    return rows


def resident_bytes() -> int:
    """Return the resident memory of this process (Linux)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vectors")
    parser.add_argument("--opening", action="store_true")
    parser.add_argument("--bytes", type=int, default=_OPENED_BYTES, help="number of bytes of vectors, with --opening")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="vectors x dimension")
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--k", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.opening:
        print_table("Opening", measure_opening(args.bytes, 768), environment("numpy", "numba"), args.json)
    else:
        sizes = [(int(n), int(dim)) for n, _, dim in (size.partition("x") for size in args.sizes)]
        rows = [row for size in sizes for k in args.k or (100,) for row in compare_faiss(size, args.batches or BATCHES, k, args.rounds)]
        print_table("Exact search", rows, {"threads": n_threads(), **environment("numpy", "numba", "faiss-cpu")}, args.json)


if __name__ == "__main__":
    main()

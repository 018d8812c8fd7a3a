"""Search for ready query vectors by this project and by its peers, side by side: exact search, and graphs with their recall.

    python -m benchmarks.dense_peers --vectors 178000                   # made vectors of 64 components
    python -m benchmarks.dense_peers --vectors 21015324 --engines exact faiss

Vectors are those of ``benchmarks.vector_indexes``: noise around a thousand centres. Engines are processes, measured in turns; see
``benchmarks.bm25``. "recall" is the share of exact search's k rows that an engine returns. A graph of 21 million takes a day to build.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.engines.build import Build, build
from benchmarks.engines.embedded import ENCODER, QUESTIONS_FILE, VECTORS, VECTORS_FILE
from benchmarks.engines.kinds import NAME, find_kind, use_data_home
from benchmarks.engines.rounds import Batches, Plan, Setting, Singles, Workers, measure_by_size, singles
from benchmarks.engines.worker import Worker
from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.vector_indexes import made_vectors, put_passages, put_vectors
from wikidx.indexer.base import Hits
from wikidx.indexer.catalog import index_ref

ENGINES = ("exact", "faiss", "faiss-best", "semantic-search", "hnswlib", "usearch")
_QUERIES, _SAMPLE = 2048, 200
_BLOCK = 1 << 18


def put_data(folder: Path, n: int, dim: int) -> Path:
    """Put made vectors into the data home, and for peers into files; return the file of the questions, which are not read."""
    questions = folder / "questions.json"
    if not questions.exists():
        use_data_home(folder)
        put_vectors(NAME, put_passages(n), ENCODER, dim)
        stored = np.load(index_ref(NAME, ENCODER).path / "vectors.npy", mmap_mode="r")
        (folder / VECTORS).mkdir(exist_ok=True)
        single = np.lib.format.open_memmap(folder / VECTORS / VECTORS_FILE, mode="w+", dtype=np.float32, shape=stored.shape)
        for first in range(0, n, _BLOCK):
            single[first : first + _BLOCK] = stored[first : first + _BLOCK]
        single.flush()
        np.save(folder / QUESTIONS_FILE, made_vectors(_QUERIES, dim, -1 % 2**32))
        questions.write_text(json.dumps([str(number) for number in range(_QUERIES)]))
    return questions


def recall(found: Hits, exact: Hits) -> float:
    """Return the share of exact search's rows that another search returns."""
    shared = sum(len(set(mine) & set(best)) for mine, best in zip(found.rows.tolist(), exact.rows.tolist(), strict=True))
    return shared / exact.rows.size


def measure(folder: Path, questions: Path, options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Yield a row for each engine and k."""
    builds = {engine: build(engine, folder, options.threads) for engine in options.engines}
    plan = Plan(options.rounds, options.seconds, _QUERIES)
    with ExitStack() as running:
        workers = {
            (engine, options.threads): running.enter_context(Worker(engine, folder, options.threads, questions))
            for engine in options.engines
        }
        for k in options.k:
            alone, together = singles(workers, [k], plan, options.threads), measure_by_size(workers, k, [options.batch], plan)
            yield from _rows(workers, builds, k, alone, together)


def _rows(
    workers: Workers, builds: Mapping[str, Build], k: int, alone: Mapping[Setting, Singles], together: Mapping[tuple[str, int], Batches]
) -> Iterator[dict[str, Figure]]:
    found = {engine: worker.hits(_SAMPLE, k) for (engine, _), worker in workers.items()}
    for (engine, threads), worker in workers.items():
        single = alone[Setting(engine, threads, k)]
        (batch,) = (figures for (name, _), figures in together.items() if name == engine)
        yield {
            "k": k,
            "engine": engine,
            "recall": recall(found[engine], found["exact"]) if "exact" in found else "",
            "p50 ms": 1e3 * float(np.median(single.p50)),
            "p99 ms": 1e3 * float(np.median(single.p99)),
            "queries/s in batches": batch.median,
            "queries/processor s": float(np.median(batch.per_processor_second)),
            "build s": builds[engine].seconds,
            "build peak MB": builds[engine].peak_bytes / 1e6,
            "index MB": builds[engine].index_bytes / 1e6,
            "open s": worker.opening.open_s,
            "RSS MB": worker.peak_bytes() / 1e6,
        }


def _run(options: argparse.Namespace) -> None:
    for engine in options.engines:
        find_kind(engine).check()
    folder: Path = options.work.resolve() / f"vectors-{options.vectors}-{options.dim}"
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(measure(folder, put_data(folder, options.vectors, options.dim), options))
    title = f"{options.vectors:,} vectors of {options.dim} components, batches of {options.batch}, {options.threads} threads"
    print_table(title, rows, environment("faiss-cpu", "torch", "hnswlib", "usearch", "numba"), options.json)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dense_peers")
    parser.add_argument("--vectors", type=int, default=178_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-dense", help="work folder; it is kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    return exit_status(lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())

"""Search for ready query vectors by this project and its peers, side by side: exact search, and indexes with their recall.

    python -m benchmarks.vectors --vectors 284295 --dim 384 --batch 1 32 512 --engines exact faiss faiss-best   # beside FAISS
    python -m benchmarks.vectors --vectors 1000000 --dim 768 --engines exact int8 binary ivf ivfpq              # this project's kinds
    python -m benchmarks.vectors --engines exact hnsw hnswlib usearch                                    # graphs: hours for a million
    python -m benchmarks.vectors --vectors-from V.npy --queries-from Q.npy     # an encoder's vectors, and those of queries
    python -m benchmarks.vectors --vectors 651041 --dim 768 --engines exact --batch     # how long 1 GB takes to open, and its memory

Vectors are made, if none are given: noise around a thousand centres, stored as float16; given ones are stored as float32. Peers hold
float32. "same rows" is the recall: the share of exact search's k rows that an engine returns. ``benchmarks.engines`` says the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.engines.corpus import Questions
from benchmarks.engines.embedded import made_vectors, put_vectors, share_vectors
from benchmarks.engines.kinds import DENSE
from benchmarks.engines.measuring import add_options, check_options, compare, index_rows, search_rows
from benchmarks.processes import NAME, use_data_home
from benchmarks.report import environment, parser, print_tables, run
from wikidx.corpora.build import StoreOptions, build_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus

ENGINES = [engine for engine in DENSE if engine not in ("minilm", "sentence-transformers")]
_QUERIES = 2048


def put_passages(n: int) -> None:
    """Create a corpus of n short passages."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(f'{{"id": "{number}", "title": "", "text": "{number}"}}\n' for number in range(n))
        file.flush()
        build_store(custom_corpus(Path(file.name), NAME, ReadOptions()), StoreOptions())


def prepare(folder: Path, options: argparse.Namespace) -> tuple[Questions, int, int]:
    """Put vectors into the data home, and for peers into files, unless they are there; return the questions, n and the dimension."""
    given = np.load(options.vectors_from, mmap_mode="r") if options.vectors_from else None
    n, dim = (options.vectors, options.dim) if given is None else given.shape
    queries = np.load(options.queries_from) if options.queries_from else made_vectors(_QUERIES, dim, -1 % 2**32)
    use_data_home(folder)
    file = folder / "questions.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        put_passages(n)
        put_vectors(dim, given)
        share_vectors(folder, queries)
        file.write_text(json.dumps([str(number) for number in range(len(queries))]))
    return Questions(file, [()] * len(queries)), n, dim


def _run(options: argparse.Namespace) -> None:
    check_options(options)
    name = f"{options.vectors}-{options.dim}" if options.vectors_from is None else Path(options.vectors_from).stem
    folder: Path = options.work.resolve() / name
    questions, n, dim = prepare(folder, options)
    results = compare(folder, questions, options)
    tables = {f"Indexes of {n:,} vectors of {dim} components": list(index_rows(results, n, 0)), "Searches": list(search_rows(results))}
    print_tables(tables, environment("numpy", "numba", "faiss-cpu", "torch", "hnswlib", "usearch"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("vectors", __doc__)
    made.add_argument("--vectors", type=int, default=178_000)
    made.add_argument("--dim", type=int, default=64)
    made.add_argument("--vectors-from", metavar="FILE.npy")
    made.add_argument("--queries-from", metavar="FILE.npy")
    add_options(made, ENGINES, ["exact", "faiss", "faiss-best", "semantic-search", "hnswlib", "usearch"])
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())

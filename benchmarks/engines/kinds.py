"""Interface between benchmarks and engines, and the table of engines.

Each process opens one engine and imports only its dependencies, so that time and memory are its own.

from questions to passages
    bm25                      this project's index
    lucene                    Lucene's own ``IndexSearcher``, as the tests ask it
    pyserini                  Pyserini's ``batch_search`` and ``search``
    bm25s                     bm25s, given the terms of this project's analysis ready
    bm25s-strings             bm25s with its own tokenizer, whose time counts
    pisa, pisa-quantized      PISA, given the same terms: scores computed from frequencies, and 8 bits of scores computed beforehand
    tantivy                   Tantivy, given the same terms
    sqlite                    SQLite's FTS5, given the same terms
    minilm                    this project: a question is encoded, all vectors are searched
    sentence-transformers     the same by ``encode`` and ``semantic_search``
from ready query vectors to passages
    exact                     this project's exact search
    faiss, faiss-best         FAISS's flat index with its defaults, and with its best settings
    semantic-search           sentence-transformers' ``semantic_search``
    hnswlib, usearch          graphs, whose search is approximate
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from wikidx.base.registry import load
from wikidx.indexer.base import NO_ROW, Hits

ENGINES = {
    "bm25": "benchmarks.engines.own:BM25",
    "lucene": "benchmarks.engines.own:LUCENE",
    "pyserini": "benchmarks.engines.anserini:PYSERINI",
    "bm25s": "benchmarks.engines.bm25s_package:BM25S",
    "bm25s-strings": "benchmarks.engines.bm25s_package:BM25S_STRINGS",
    "pisa": "benchmarks.engines.pisa_package:PISA",
    "pisa-quantized": "benchmarks.engines.pisa_package:PISA_QUANTIZED",
    "tantivy": "benchmarks.engines.tantivy_package:TANTIVY",
    "sqlite": "benchmarks.engines.sqlite_fts:SQLITE",
    "minilm": "benchmarks.engines.own_dense:MINILM",
    "exact": "benchmarks.engines.own_dense:EXACT",
    "sentence-transformers": "benchmarks.engines.torch_search:SENTENCE_TRANSFORMERS",
    "semantic-search": "benchmarks.engines.torch_search:SEMANTIC_SEARCH",
    "hnswlib": "benchmarks.engines.graphs:HNSWLIB",
    "usearch": "benchmarks.engines.graphs:USEARCH",
    "faiss": "benchmarks.engines.faiss_flat:FAISS",
    "faiss-best": "benchmarks.engines.faiss_flat:FAISS_BEST",
}
_TRIES = 2
T = TypeVar("T")
NAME = "measured"  # name of the corpus in the data home of its folder


def use_data_home(folder: Path) -> None:
    """Set this process's data home to a corpus's folder."""
    os.environ["IDX_HOME"] = str(folder / "home")


def pin(threads: int) -> None:
    """Limit this process, and its future children, to this many CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def peak_bytes() -> int:
    """Return the peak memory of this process; ``getrusage`` would include its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def fastest(choices: Sequence[T], work: Callable[[T], object]) -> T:
    """Return the choice with the shortest time of two tries."""

    def seconds(choice: T) -> float:
        started = time.perf_counter()
        work(choice)
        return time.perf_counter() - started

    return min(choices, key=lambda choice: min(seconds(choice) for _ in range(_TRIES)))


def pad_hits(found: Sequence[tuple[Sequence[int], Sequence[float]]], k: int) -> Hits:
    """Return the rows and scores of each question as arrays, filled up to k."""
    rows, scores = np.full((len(found), k), NO_ROW, dtype=np.int64), np.full((len(found), k), -np.inf, dtype=np.float32)
    for line, (its_rows, its_scores) in enumerate(found):
        rows[line, : len(its_rows)], scores[line, : len(its_scores)] = its_rows, its_scores
    return Hits(rows, scores)


def do_nothing(*_: object) -> None:
    """Do nothing: for an engine without a check or preparation."""


class Engine(Protocol):
    """An open index, and the questions to search for.

    An engine whose scores are its own may also have ``exhaustive``: as ``hits``, by a search that leaves no row out.
    """

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions in the form in which the engine's users have them; not timed."""
        ...

    def batch(self, span: slice, k: int) -> object:
        """Return the k best of each of some questions, as one batch."""
        ...

    def single(self, number: int, k: int) -> object:
        """Return the k best of one question, alone."""
        ...

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch`` for the first n questions, each question's rows in any order; not timed."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """Functions to build and open an engine's index.

    Attributes:
        build: (folder of the corpus, threads) -> the directory of the index.
        open: (folder, threads) -> the engine; one batch may use that many threads.
        load: imports, and the start of Java where the engine needs it: everything done once before an index is opened.
        check: raises ``MissingExtraError`` if a dependency is not installed.
        prepare: (folder): write the build's inputs; not timed.
    """

    build: Callable[[Path, int], Path]
    open: Callable[[Path, int], Engine]
    load: Callable[[], object]
    check: Callable[[], None] = do_nothing
    prepare: Callable[[Path], None] = do_nothing


def find_kind(name: str) -> Kind:
    """Return an engine by its name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    kind: Kind = load("engine", name, ENGINES)
    return kind

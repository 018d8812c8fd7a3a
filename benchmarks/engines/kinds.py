"""Interface between benchmarks and engines, and the table of engines.

Each process opens one engine and imports only its dependencies, so that time and memory are its own.

from questions to passages
    bm25                      this project's index
    call, groups              this project's ``search`` with BM25 and the text of every hit; ``search_groups`` with five questions a group
    pyserini                  Pyserini's ``batch_search`` and ``search``
    bm25s                     bm25s, given the terms of this project's analysis ready
    bm25s-strings             bm25s with its own tokenizer, whose time counts
    pisa, pisa-quantized      PISA, given the same terms: scores computed from frequencies, and 8 bits of scores computed beforehand
    tantivy                   Tantivy, given the same terms
    sqlite                    SQLite's FTS5, given the same terms
    minilm                    this project: a question is encoded, all vectors are searched
    sentence-transformers     the same by ``encode`` and ``semantic_search``
from ready query vectors to passages
    exact, int8, binary       this project's search of all vectors
    ivf, ivfpq, hnsw          this project's indexes by FAISS
    faiss, faiss-best         FAISS's flat index with its defaults, and with its best settings
    semantic-search           sentence-transformers' ``semantic_search``
    hnswlib, usearch          graphs, whose search is approximate
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.report import seconds_of
from wikidx.base.errors import MissingExtraError
from wikidx.base.registry import load
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import NO_ROW, Hits

K1, B = 0.9, 0.4  # of all engines that take parameters
OWN_VECTORS = ("exact", "int8", "binary", "ivf", "ivfpq", "hnsw")
DENSE = ("minilm", "sentence-transformers", *OWN_VECTORS, "faiss", "faiss-best", "semantic-search", "hnswlib", "usearch")
ENGINES = {
    "bm25": "benchmarks.engines.own:BM25",
    "call": "benchmarks.engines.own:CALL",
    "groups": "benchmarks.engines.own:GROUPS",
    "minilm": "benchmarks.engines.own:MINILM",
    **{kind: f"benchmarks.engines.own:{kind.upper()}" for kind in OWN_VECTORS},
    "pyserini": "benchmarks.engines.anserini:PYSERINI",
    "bm25s": "benchmarks.engines.bm25s_package:BM25S",
    "bm25s-strings": "benchmarks.engines.bm25s_package:BM25S_STRINGS",
    "pisa": "benchmarks.engines.pisa_package:PISA",
    "pisa-quantized": "benchmarks.engines.pisa_package:PISA_QUANTIZED",
    "tantivy": "benchmarks.engines.tantivy_package:TANTIVY",
    "sqlite": "benchmarks.engines.sqlite_fts:SQLITE",
    "sentence-transformers": "benchmarks.engines.dense_packages:SENTENCE_TRANSFORMERS",
    "semantic-search": "benchmarks.engines.dense_packages:SEMANTIC_SEARCH",
    "faiss": "benchmarks.engines.dense_packages:FAISS",
    "faiss-best": "benchmarks.engines.dense_packages:FAISS_BEST",
    "hnswlib": "benchmarks.engines.dense_packages:HNSWLIB",
    "usearch": "benchmarks.engines.dense_packages:USEARCH",
}
_TRIES = 2
T = TypeVar("T")


def pin(threads: int) -> None:
    """Limit this process, and its future children, to this many CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def contents(passage: Passage) -> str:
    """Return the text that every engine indexes."""
    return f"{passage.title}\n{passage.text}"


def fastest(choices: Sequence[T], work: Callable[[T], object]) -> T:
    """Return the choice with the shortest time of two tries."""
    return min(choices, key=lambda choice: min(seconds_of(partial(work, choice)) for _ in range(_TRIES)))


def pad_hits(found: Sequence[tuple[Sequence[int], Sequence[float]]], k: int) -> Hits:
    """Return the rows and scores of each question as arrays, filled up to k."""
    rows, scores = np.full((len(found), k), NO_ROW, dtype=np.int64), np.full((len(found), k), -np.inf, dtype=np.float32)
    for line, (its_rows, its_scores) in enumerate(found):
        rows[line, : len(its_rows)], scores[line, : len(its_scores)] = its_rows, its_scores
    return Hits(rows, scores)


def require(package: str, extra: str) -> None:
    """Raise ``MissingExtraError`` unless a package is installed."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(package, extra)


def do_nothing(*_: object) -> None:
    """Do nothing: for an engine without a check or preparation."""


class Engine:
    """An open index, and the questions to search for, in the form in which the engine's users have them.

    ``is_exhaustive``: its only search computes the score of every row with a term of the question.
    """

    questions: Any = ()
    is_exhaustive = False

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions; not timed."""
        self.questions = list(questions)

    def batch(self, span: slice, k: int) -> Any:  # noqa: ANN401 - as the engine returns it
        """Return the k best of each of some questions, as one batch."""
        raise NotImplementedError

    def single(self, number: int, k: int) -> Any:  # noqa: ANN401 - as the engine returns it
        """Return the k best of one question, alone."""
        return self.batch(slice(number, number + 1), k)

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - what ``batch`` returns
        """Return the results of a batch of n questions, each question's rows in any order; not timed."""
        hits: Hits = found
        return hits

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch`` for the first n questions."""
        return self.to_hits(self.batch(slice(n), k), n, k)

    def exhaustive(self, n: int, k: int) -> Hits | None:
        """Return the same by a search that leaves no row out; None if the engine has no such search."""
        return self.hits(n, k) if self.is_exhaustive else None


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
    load: Callable[[], object] = do_nothing
    check: Callable[[], None] = do_nothing
    prepare: Callable[[Path], None] = do_nothing


def find_kind(name: str) -> Kind:
    """Return an engine by its name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    kind: Kind = load("engine", name, ENGINES)
    return kind

"""What ``benchmarks.bm25`` asks of an engine, and the engines that there are.

Each process opens one engine; what an engine needs is imported there only, so that memory and time are its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from corpora.registry import load
from indexer.base import Hits

ENGINES = {
    "bm25": "benchmarks.bm25.own:BM25",
    "bm25s": "benchmarks.bm25.sparse_matrix:BM25S",
    "pyserini": "benchmarks.bm25.anserini:PYSERINI",
    "lucene": "benchmarks.bm25.own:LUCENE",
}
REFERENCE = "lucene"  # Lucene's raw scores, as deep as is asked
NAME = "measured"  # of the corpus, in the data home of its folder


def enter(folder: Path) -> None:
    """Make the data home in a corpus's folder that of this process."""
    os.environ["IDX_HOME"] = str(folder / "home")


def pin(threads: int) -> None:
    """Allow this process, and those it will start, only so many processors."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def nothing(*_: object) -> None:
    """Do nothing: what an engine has to check or to prepare that has nothing to."""


class Engine(Protocol):
    """An open index, and the questions it will be asked."""

    def ask(self, questions: Sequence[str]) -> None:
        """Keep the questions in the form in which the engine's users have them when they search; not timed."""
        ...

    def batch(self, n: int, k: int) -> object:
        """Return the k best of each of the first n questions, asked at once."""
        ...

    def single(self, number: int, k: int) -> object:
        """Return the k best of one question, asked alone."""
        ...

    def hits(self, n: int, k: int) -> Hits:
        """Return what ``batch`` finds, each question's rows in any order; not timed."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """How an engine's index is made and opened.

    Attributes:
        build: (folder of the corpus, threads) -> the directory of the index.
        open: (folder, threads) -> the engine; the number of threads is how many one batch may use.
        load: import, and where there is one start Java: what has to be done once before any index is opened.
        check: raises ``MissingExtraError`` if what it needs is not installed.
        prepare: (folder): write what the build starts from; not timed.
    """

    build: Callable[[Path, int], Path]
    open: Callable[[Path, int], Engine]
    load: Callable[[], object]
    check: Callable[[], None] = nothing
    prepare: Callable[[Path], None] = nothing


def kind_of(name: str) -> Kind:
    """Return an engine by its name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    kind: Kind = load("engine", name, ENGINES)
    return kind

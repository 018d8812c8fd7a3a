"""Interface between benchmarks and engines, and the table of engines.

Each process opens one engine and imports only its dependencies, so that time and memory are its own.

from questions to passages
    bm25, lucene              this project's indexes
    pyserini                  Pyserini's ``batch_search`` and ``search``
    bm25s                     bm25s, given the terms of this project's analysis ready
    bm25s-strings             bm25s with its own tokenizer, whose time counts
    minilm                    this project: a question is encoded, all vectors are searched
    sentence-transformers     the same by ``encode`` and ``semantic_search``
from ready query vectors to passages
    exact                     this project's exact search
    faiss, faiss-best         FAISS's flat index with its defaults, and with its best settings
    semantic-search           sentence-transformers' ``semantic_search``
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wikidx.corpora.registry import load
from wikidx.indexer.base import Hits

ENGINES = {
    "bm25": "benchmarks.engines.own:BM25",
    "lucene": "benchmarks.engines.own:LUCENE",
    "pyserini": "benchmarks.engines.anserini:PYSERINI",
    "bm25s": "benchmarks.engines.bm25s_package:BM25S",
    "bm25s-strings": "benchmarks.engines.bm25s_package:BM25S_STRINGS",
    "minilm": "benchmarks.engines.own_dense:MINILM",
    "exact": "benchmarks.engines.own_dense:EXACT",
    "sentence-transformers": "benchmarks.engines.torch_search:SENTENCE_TRANSFORMERS",
    "semantic-search": "benchmarks.engines.torch_search:SEMANTIC_SEARCH",
    "faiss": "benchmarks.engines.faiss_flat:FAISS",
    "faiss-best": "benchmarks.engines.faiss_flat:FAISS_BEST",
}
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


def do_nothing(*_: object) -> None:
    """Do nothing: for an engine without a check or preparation."""


class Engine(Protocol):
    """An open index, and the questions to search for."""

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

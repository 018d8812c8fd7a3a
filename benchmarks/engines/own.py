"""The project's BM25, and Lucene as the tests ask it: from strings to ``Hits``, analysis included.

BM25 uses as many threads as the process has CPUs; it is pinned accordingly. Lucene answers query by query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.engines.kinds import NAME, Kind
from tests.lucene.jvm import check_installed, java_class
from tests.lucene.oracle import Oracle, index_passages
from wikidx.base.machine.memory import memory_bytes
from wikidx.base.registry import load
from wikidx.corpora.build import open_store
from wikidx.indexer import INDEXES
from wikidx.indexer.base import Hits, LexicalIndex
from wikidx.indexer.build import build_index, open_lexical_index
from wikidx.indexer.catalog import index_ref

_LUCENE = "lucene"


class OwnEngine:
    """A searcher from strings to ``Hits``."""

    def __init__(self, open_index: Callable[[Path], LexicalIndex | Oracle], folder: Path, _threads: int) -> None:
        self._index = open_index(folder)
        self._questions: list[str] = []

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions unchanged."""
        self._questions = list(questions)

    def batch(self, span: slice, k: int) -> Hits:
        """Search for several questions in one batch."""
        return self._index.search(self._questions[span], k)

    def single(self, number: int, k: int) -> Hits:
        """Search for one question."""
        return self._index.search([self._questions[number]], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return self.batch(slice(n), k)


def _open_bm25(_: Path) -> LexicalIndex:
    return open_lexical_index(NAME, "bm25", open_store(NAME))


def _build_bm25(_folder: Path, _threads: int) -> Path:
    build_index(NAME, "bm25", open_store(NAME), force=True)
    return index_ref(NAME, "bm25").path


def _open_lucene(folder: Path) -> Oracle:
    return Oracle(folder / _LUCENE)


def _build_lucene(folder: Path, threads: int) -> Path:
    store = open_store(NAME)
    return index_passages(store.read(0, len(store)), folder / _LUCENE, threads=threads, heap_bytes=memory_bytes() // 4)


BM25 = Kind(build=_build_bm25, open=partial(OwnEngine, _open_bm25), load=partial(load, "index", "bm25", INDEXES))
LUCENE = Kind(
    build=_build_lucene, open=partial(OwnEngine, _open_lucene), load=partial(java_class, "java.lang.String"), check=check_installed
)

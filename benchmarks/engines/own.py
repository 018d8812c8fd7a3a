"""The project's two lexical indexes: from strings to ``Hits``, analysis included.

Both use as many threads as the process has CPUs; it is pinned accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.engines.kinds import NAME, Kind
from wikidx.base.registry import load
from wikidx.corpora.build import open_store
from wikidx.indexer import INDEXES
from wikidx.indexer.base import Hits, LexicalIndex
from wikidx.indexer.build import build_index, open_lexical_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.lucene.jvm import check_installed, java_class


class OwnEngine:
    """A lexical index of the project."""

    def __init__(self, name: str, _folder: Path, _threads: int) -> None:
        self._index: LexicalIndex = open_lexical_index(NAME, name, open_store(NAME))
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


def _build(name: str, _folder: Path, _threads: int) -> Path:
    build_index(NAME, name, open_store(NAME), force=True)
    return index_ref(NAME, name).path


BM25 = Kind(build=partial(_build, "bm25"), open=partial(OwnEngine, "bm25"), load=partial(load, "index", "bm25", INDEXES))
LUCENE = Kind(
    build=partial(_build, "lucene"), open=partial(OwnEngine, "lucene"), load=partial(java_class, "java.lang.String"), check=check_installed
)

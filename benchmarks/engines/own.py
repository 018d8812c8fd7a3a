"""This project's engines: from strings or ready query vectors to ``Hits``, or to passages with their texts.

All use as many threads as the process has CPUs; it is pinned accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engines.embedded import ENCODER, question_vectors
from benchmarks.engines.kinds import OWN_VECTORS, Engine, Kind, pad_hits, require
from benchmarks.processes import NAME
from wikidx.base.registry import load
from wikidx.corpora.build import open_store
from wikidx.indexer import INDEXES
from wikidx.indexer.base import Hits
from wikidx.indexer.build import build_index, open_lexical_index, open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.opening import open_retriever, open_searcher
from wikidx.retrievers.options import SearchOptions

GROUP = 5  # questions
_DEPTH = 100

Search = Callable[[Any, int], Any]


class OwnEngine(Engine):
    """A search of this project, opened by a function."""

    def __init__(self, open_search: Callable[[], Search], folder: Path, _threads: int) -> None:
        self._search, self._folder = open_search(), folder

    def batch(self, span: slice, k: int) -> Any:  # noqa: ANN401 - hits or rankings
        """Search for several questions in one batch."""
        return self._search(self.questions[span], k)

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - hits or rankings
        """Return the rows and scores of rankings."""
        if isinstance(found, Hits):
            return found
        return pad_hits([([hit.row for hit in ranking], [hit.score for hit in ranking]) for ranking in found], k)


class VectorEngine(OwnEngine):
    """A search of this project for ready query vectors."""

    def set_questions(self, questions: Sequence[str]) -> None:
        """Read the questions' vectors."""
        self.questions = question_vectors(self._folder)


def _open_call() -> Search:
    searcher = open_searcher(NAME, "bm25")
    return lambda queries, k: _read_texts(searcher.search(queries, k=k))


def _open_groups() -> Search:
    searcher = open_searcher(NAME, "bm25")

    def search(queries: list[str], k: int) -> list[Ranking]:
        groups = [queries[first : first + GROUP] for first in range(0, len(queries), GROUP)]
        return _read_texts(searcher.search_groups(groups, SearchOptions(k=k, depth=max(k, _DEPTH))))

    return search


def _read_texts(rankings: list[Ranking]) -> list[Ranking]:
    for ranking in rankings:
        for hit in ranking:
            len(hit.text)
    return rankings


def _build(name: str, _folder: Path, _threads: int) -> Path:
    build_index(NAME, name, open_store(NAME), force=True)
    return index_ref(NAME, name).path


def _vectors(_folder: Path, _threads: int) -> Path:
    """Return the folder of the vectors: no other index is built."""
    return index_ref(NAME, ENCODER).path


def _vector_kind(kind: str) -> Kind:
    """Return exact search, or an index of a kind over the encoder's vectors."""
    name = ENCODER if kind == "exact" else f"{ENCODER}-{kind}"
    opened = partial(VectorEngine, lambda: open_vector_index(NAME, name, open_store(NAME)).search)
    return Kind(_vectors if kind == "exact" else partial(_build, name), opened)


_build_bm25, _load_bm25 = partial(_build, "bm25"), partial(load, "index", "bm25", INDEXES)
BM25 = Kind(_build_bm25, partial(OwnEngine, lambda: open_lexical_index(NAME, "bm25", open_store(NAME)).search), _load_bm25)
CALL = Kind(_build_bm25, partial(OwnEngine, _open_call), _load_bm25)
GROUPS = Kind(_build_bm25, partial(OwnEngine, _open_groups), _load_bm25)
MINILM = Kind(
    _vectors,
    partial(OwnEngine, lambda: open_retriever(NAME, ENCODER, open_store(NAME)).retrieve),
    check=partial(require, "torch", "dense"),
)
EXACT, INT8, BINARY, IVF, IVFPQ, HNSW = map(_vector_kind, OWN_VECTORS)

"""The project's exact search over MiniLM's vectors: from questions, and from ready query vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.engines.embedded import ENCODER, question_vectors, require
from benchmarks.engines.kinds import NAME, Kind
from wikidx.corpora.build import open_store
from wikidx.indexer.base import Hits
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.retrievers.opening import open_retriever


class EncodingEngine:
    """Encodes questions and searches their vectors."""

    def __init__(self, _folder: Path, _threads: int) -> None:
        self._retriever = open_retriever(NAME, ENCODER, open_store(NAME))
        self._questions: list[str] = []

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions unchanged."""
        self._questions = list(questions)

    def batch(self, span: slice, k: int) -> Hits:
        """Search for several questions in one batch."""
        return self._retriever.retrieve(self._questions[span], k)

    def single(self, number: int, k: int) -> Hits:
        """Search for one question."""
        return self._retriever.retrieve([self._questions[number]], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return self.batch(slice(n), k)


class ExactEngine:
    """Searches the shards on disk for vectors."""

    def __init__(self, folder: Path, _threads: int) -> None:
        self._index = open_vector_index(NAME, ENCODER, open_store(NAME))
        self._vectors = question_vectors(folder)

    def set_questions(self, _questions: Sequence[str]) -> None:
        """Do nothing: their vectors are already there."""

    def batch(self, span: slice, k: int) -> Hits:
        """Search for several vectors in one batch."""
        return self._index.search(self._vectors[span], k)

    def single(self, number: int, k: int) -> Hits:
        """Search for one vector."""
        return self._index.search(self._vectors[number : number + 1], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return self.batch(slice(n), k)


def _shards(_folder: Path, _threads: int) -> Path:
    """Return the folder of the shards: no other index is built."""
    return index_ref(NAME, ENCODER).path


_check = partial(require, "torch", "dense")

MINILM = Kind(build=_shards, open=EncodingEngine, load=lambda: None, check=_check)
EXACT = Kind(build=_shards, open=ExactEngine, load=lambda: None, check=_check)

"""sentence-transformers: ``encode`` with MiniLM and ``util.semantic_search``, and the latter alone with ready query vectors.

The vectors have length 1, so that inner products replace the default, cosines, which would normalise again. The batch
size of ``encode`` and the query chunk of ``semantic_search`` are the fastest of those tried on the first questions.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engines.embedded import VECTORS, checkpoint, passage_vectors, question_vectors, require
from benchmarks.engines.kinds import Kind, fastest, pad_hits
from wikidx.indexer.base import Hits

_ENCODED = (8, 16, 32, 64, 128)  # questions per batch; 32 is the default
_SEARCHED = (100, 500, 5_000)  # queries per batch; 100 is the default
_TRIED = 256  # questions

RawHits = list[list[dict[str, Any]]]


class _Search:
    """``semantic_search`` over the passages' vectors."""

    def __init__(self, folder: Path, threads: int) -> None:
        torch, self._util = importlib.import_module("torch"), _package().util
        torch.set_num_threads(threads)
        self._passages = torch.from_numpy(passage_vectors(folder))
        self._chunk: dict[int, int] = {}  # by k

    def __call__(self, vectors: Any, k: int) -> RawHits:  # noqa: ANN401 - a tensor
        if len(vectors) == 1:
            return self._search(vectors, k, 1)
        if k not in self._chunk:
            self._chunk[k] = fastest(_SEARCHED, lambda size: self._search(vectors, k, size))
        return self._search(vectors, k, self._chunk[k])

    def _search(self, vectors: Any, k: int, size: int) -> RawHits:  # noqa: ANN401 - a tensor
        found: RawHits = self._util.semantic_search(
            vectors, self._passages, query_chunk_size=size, top_k=k, score_function=self._util.dot_score
        )
        return found


class SentenceTransformersEngine:
    """Encodes questions and searches their vectors."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._search = _Search(folder, threads)
        self._model = _package().SentenceTransformer(checkpoint(folder), device="cpu")
        self._questions: list[str] = []
        self._size = 0

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions unchanged."""
        self._questions = list(questions)

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several questions in one batch."""
        if not self._size:
            self._size = fastest(_ENCODED, lambda size: self._encode(self._questions[:_TRIED], size))
        return self._search(self._encode(self._questions[span], self._size), k)

    def single(self, number: int, k: int) -> RawHits:
        """Search for one question."""
        return self._search(self._encode([self._questions[number]], 1), k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return _hits(self.batch(slice(n), k), k)

    def _encode(self, questions: list[str], size: int) -> Any:  # noqa: ANN401 - a tensor
        return self._model.encode(questions, batch_size=size, convert_to_tensor=True, show_progress_bar=False)


class SemanticSearchEngine:
    """Searches ready query vectors."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._search = _Search(folder, threads)
        self._vectors = importlib.import_module("torch").from_numpy(question_vectors(folder))

    def set_questions(self, _questions: Sequence[str]) -> None:
        """Do nothing: their vectors are already there."""

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several vectors in one batch."""
        return self._search(self._vectors[span], k)

    def single(self, number: int, k: int) -> RawHits:
        """Search for one vector."""
        return self._search(self._vectors[number : number + 1], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return _hits(self.batch(slice(n), k), k)


def _hits(found: RawHits, k: int) -> Hits:
    return pad_hits([([hit["corpus_id"] for hit in hits], [hit["score"] for hit in hits]) for hits in found], k)


def _vectors_folder(folder: Path, _threads: int) -> Path:
    """Return the folder of the vectors: no other index is built."""
    return folder / VECTORS


def _package() -> Any:  # noqa: ANN401 - a module whose import takes seconds
    return importlib.import_module("sentence_transformers")


_check = partial(require, "sentence_transformers", "bench")

SENTENCE_TRANSFORMERS = Kind(build=_vectors_folder, open=SentenceTransformersEngine, load=_package, check=_check)
SEMANTIC_SEARCH = Kind(build=_vectors_folder, open=SemanticSearchEngine, load=_package, check=_check)

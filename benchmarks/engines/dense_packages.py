"""FAISS, sentence-transformers, hnswlib and USearch, searched with ready query vectors; sentence-transformers also from strings.

FAISS by default searches query by query unless a batch is very large. At its best it multiplies matrices
(``distance_compute_blas_threshold`` 1) wherever that is faster, with the fastest sizes of vector blocks and query batches for the number of
queries and results. sentence-transformers searches by inner products, as the vectors have length 1, with its fastest query chunk and, in
``encode``, batch size. All these are tried when a batch size is first used, which is not timed.

Both graphs have 16 links a node, 200 candidates while building and 128 while searching, or k, if that is more; vectors stay float32.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.embedded import VECTORS, checkpoint, passage_vectors, question_vectors
from benchmarks.engines.kinds import Engine, Kind, fastest, pad_hits, require
from wikidx.indexer.base import Hits, Vectors

_FILE = "index"
_BLOCKS = (1_024, 4_096, 16_384)  # of FAISS, vectors per block; 1,024 is the default
_PIECES = (512, 1_024)  # of FAISS, queries per call; fewer were never faster
_ENCODED = (8, 16, 32, 64, 128)  # questions per batch; 32 is the default
_SEARCHED = (100, 500, 5_000)  # of semantic_search, queries per chunk; 100 is the default
_TRIED = 256  # questions
_LINKS, _WHILE_BUILDING, _WHILE_SEARCHING = 16, 200, 128

FaissSetting = tuple[int | None, int]  # vectors per block (None: FAISS's default), and queries per call


class _VectorsGiven(Engine):
    """An engine that is given the questions' vectors."""

    def __init__(self, folder: Path) -> None:
        self.questions = question_vectors(folder)

    def set_questions(self, questions: Sequence[str]) -> None:
        """Do nothing: their vectors are already there."""


class FaissEngine(_VectorsGiven):
    """FAISS's ``IndexFlatIP``; ``is_tuned`` selects the best settings."""

    def __init__(self, is_tuned: bool, folder: Path, threads: int) -> None:
        super().__init__(folder)
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(threads)
        self._index, self._cvar, self._is_tuned = read_flat(folder), faiss.cvar, is_tuned
        self._default = self._cvar.distance_compute_blas_threshold, self._cvar.distance_compute_blas_database_bs
        self._best: dict[tuple[int, int], FaissSetting] = {}

    def batch(self, span: slice, k: int) -> list[tuple[Any, Any]]:
        """Search for some vectors."""
        vectors = self.questions[span]
        if not self._is_tuned:
            return self._search(vectors, k, (None, len(vectors)))
        size = len(vectors), k
        if size not in self._best:
            pieces = [*(piece for piece in _PIECES if piece < len(vectors)), len(vectors)]
            settings = list(itertools.product((None, *_BLOCKS), pieces))
            self._best[size] = fastest(settings, lambda setting: self._search(vectors, k, setting))
        return self._search(vectors, k, self._best[size])

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - scores and rows of each piece
        """Join the pieces."""
        scores, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Hits(rows, scores)

    def _search(self, vectors: Vectors, k: int, setting: FaissSetting) -> list[tuple[Any, Any]]:
        block, piece = setting
        threshold, size = self._default if block is None else (1, block)
        self._cvar.distance_compute_blas_threshold, self._cvar.distance_compute_blas_database_bs = threshold, size
        return [self._index.search(vectors[first : first + piece], k) for first in range(0, len(vectors), piece)]


class SemanticSearchEngine(_VectorsGiven):
    """``semantic_search`` of sentence-transformers; with ``encodes`` from strings."""

    def __init__(self, encodes: bool, folder: Path, threads: int) -> None:
        super().__init__(folder)
        torch, package = importlib.import_module("torch"), importlib.import_module("sentence_transformers")
        torch.set_num_threads(threads)
        self._util, self._passages = package.util, torch.from_numpy(passage_vectors(folder))
        self._model = package.SentenceTransformer(checkpoint(folder), device="cpu") if encodes else None
        self._chunk: dict[int, int] = {}  # by k
        self._size = 0
        self.questions = torch.from_numpy(self.questions)

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions if they are to be encoded."""
        self.questions = list(questions) if self._model else self.questions

    def batch(self, span: slice, k: int) -> Any:  # noqa: ANN401 - dictionaries
        """Search for several questions in one batch."""
        asked = self.questions[span]
        vectors = self._encode(asked) if self._model else asked
        if len(vectors) == 1:
            return self._search(vectors, k, 1)
        if k not in self._chunk:
            self._chunk[k] = fastest(_SEARCHED, lambda size: self._search(vectors, k, size))
        return self._search(vectors, k, self._chunk[k])

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - dictionaries
        """Return their rows and scores."""
        return pad_hits([([hit["corpus_id"] for hit in hits], [hit["score"] for hit in hits]) for hits in found], k)

    def _search(self, vectors: Any, k: int, size: int) -> Any:  # noqa: ANN401 - a tensor, and dictionaries
        return self._util.semantic_search(vectors, self._passages, query_chunk_size=size, top_k=k, score_function=self._util.dot_score)

    def _encode(self, questions: list[str]) -> Any:  # noqa: ANN401 - a tensor
        def encode(texts: list[str], size: int) -> Any:  # noqa: ANN401 - a tensor
            return self._model.encode(texts, batch_size=size, convert_to_tensor=True, show_progress_bar=False)  # type: ignore[union-attr]

        if len(questions) == 1:
            return encode(questions, 1)
        if not self._size:
            self._size = fastest(_ENCODED, lambda size: encode(self.questions[:_TRIED], size))
        return encode(questions, self._size)


class _GraphEngine(_VectorsGiven):
    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - rows and distances
        """Return rows and scores; both packages' distance is 1 less the inner product."""
        rows, distances = found
        return Hits(rows.astype(np.int64), (1 - distances).astype(np.float32))


class HnswlibEngine(_GraphEngine):
    """hnswlib's index."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder)
        self._index = importlib.import_module("hnswlib").Index(space="ip", dim=self.questions.shape[1])
        self._index.load_index(str(folder / "hnswlib" / _FILE))
        self._index.set_num_threads(threads)

    def batch(self, span: slice, k: int) -> tuple[Any, Any]:
        """Search for several vectors in one batch."""
        self._index.set_ef(max(_WHILE_SEARCHING, k))
        rows, distances = self._index.knn_query(self.questions[span], k=k)
        return rows, distances


class UsearchEngine(_GraphEngine):
    """USearch's index."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder)
        self._index, self._threads = _empty_usearch(self.questions.shape[1]), threads
        self._index.load(str(folder / "usearch" / _FILE))

    def batch(self, span: slice, k: int) -> tuple[Any, Any]:
        """Search for several vectors in one batch."""
        self._index.expansion_search = max(_WHILE_SEARCHING, k)
        found = self._index.search(self.questions[span], k, threads=self._threads)
        return np.atleast_2d(found.keys), np.atleast_2d(found.distances)


def _build(package: str, folder: Path, threads: int) -> Path:
    """Build an index of the passages' vectors, and write it."""
    vectors, path = passage_vectors(folder), str(folder / package / _FILE)
    (folder / package).mkdir(exist_ok=True)
    if package == "faiss":
        faiss = importlib.import_module(package)
        faiss.omp_set_num_threads(threads)
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        faiss.write_index(index, path)
    elif package == "hnswlib":
        index = importlib.import_module(package).Index(space="ip", dim=vectors.shape[1])
        index.init_index(max_elements=len(vectors), ef_construction=_WHILE_BUILDING, M=_LINKS)
        index.add_items(vectors, np.arange(len(vectors)), num_threads=threads)
        index.save_index(path)
    else:
        index = _empty_usearch(vectors.shape[1])
        index.add(np.arange(len(vectors)), vectors, threads=threads)
        index.save(path)
    return folder / package


def _empty_usearch(dim: int) -> Any:  # noqa: ANN401 - a package without types
    index = importlib.import_module("usearch.index").Index
    return index(ndim=dim, metric="ip", dtype="f32", connectivity=_LINKS, expansion_add=_WHILE_BUILDING, expansion_search=_WHILE_SEARCHING)


def read_flat(folder: Path) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return FAISS's built index in a corpus's folder."""
    return importlib.import_module("faiss").read_index(str(folder / "faiss" / _FILE))


def _kind(package: str, extra: str, opened: Any, *, is_built: bool = True) -> Kind:  # noqa: ANN401 - an engine's class
    build = partial(_build, package) if is_built else lambda folder, threads: folder / VECTORS
    return Kind(build, opened, partial(importlib.import_module, package), partial(require, package, extra))


FAISS, FAISS_BEST = (_kind("faiss", "dense", partial(FaissEngine, is_tuned)) for is_tuned in (False, True))
SEMANTIC_SEARCH, SENTENCE_TRANSFORMERS = (
    _kind("sentence_transformers", "bench", partial(SemanticSearchEngine, encodes), is_built=False) for encodes in (False, True)
)
HNSWLIB, USEARCH = _kind("hnswlib", "bench", HnswlibEngine), _kind("usearch", "bench", UsearchEngine)

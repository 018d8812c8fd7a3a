"""hnswlib and usearch: approximate search over graphs, with equal parameters, searched with ready query vectors.

Both have 16 links a node, 200 candidates while building and 128 while searching, or k, if that is more; vectors stay float32.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.embedded import passage_vectors, question_vectors, require
from benchmarks.engines.kinds import Kind
from wikidx.indexer.base import Hits

_LINKS, _WHILE_BUILDING, _WHILE_SEARCHING = 16, 200, 128
_HNSWLIB, _USEARCH = "hnswlib", "usearch"
_FILE = "graph"

RawHits = tuple[Any, Any]  # rows and distances, both of shape (Q, k)


class _Engine:
    """An open graph; subclasses search it."""

    def __init__(self, folder: Path) -> None:
        self._vectors = question_vectors(folder)

    def set_questions(self, _questions: Sequence[str]) -> None:
        """Do nothing: their vectors are already there."""

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several vectors in one batch."""
        raise NotImplementedError

    def single(self, number: int, k: int) -> RawHits:
        """Search for one vector."""
        return self.batch(slice(number, number + 1), k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``; both packages' distance is 1 less the inner product."""
        rows, distances = self.batch(slice(n), k)
        return Hits(rows.astype(np.int64), (1 - distances).astype(np.float32))


class HnswlibEngine(_Engine):
    """hnswlib's index."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder)
        self._index = _package(_HNSWLIB).Index(space="ip", dim=self._vectors.shape[1])
        self._index.load_index(str(folder / _HNSWLIB / _FILE))
        self._index.set_num_threads(threads)

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several vectors in one batch."""
        self._index.set_ef(max(_WHILE_SEARCHING, k))
        rows, distances = self._index.knn_query(self._vectors[span], k=k)
        return rows, distances


class UsearchEngine(_Engine):
    """usearch's index."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder)
        self._index, self._threads = _empty_usearch(self._vectors.shape[1]), threads
        self._index.load(str(folder / _USEARCH / _FILE))

    def batch(self, span: slice, k: int) -> RawHits:
        """Search for several vectors in one batch."""
        self._index.expansion_search = max(_WHILE_SEARCHING, k)
        found = self._index.search(self._vectors[span], k, threads=self._threads)
        return np.atleast_2d(found.keys), np.atleast_2d(found.distances)


def _build_hnswlib(folder: Path, threads: int) -> Path:
    vectors = passage_vectors(folder)
    index = _package(_HNSWLIB).Index(space="ip", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), ef_construction=_WHILE_BUILDING, M=_LINKS)
    index.add_items(vectors, np.arange(len(vectors)), num_threads=threads)
    (folder / _HNSWLIB).mkdir(exist_ok=True)
    index.save_index(str(folder / _HNSWLIB / _FILE))
    return folder / _HNSWLIB


def _build_usearch(folder: Path, threads: int) -> Path:
    vectors = passage_vectors(folder)
    index = _empty_usearch(vectors.shape[1])
    index.add(np.arange(len(vectors)), vectors, threads=threads)
    (folder / _USEARCH).mkdir(exist_ok=True)
    index.save(str(folder / _USEARCH / _FILE))
    return folder / _USEARCH


def _empty_usearch(dim: int) -> Any:  # noqa: ANN401 - a package without types
    index = importlib.import_module("usearch.index").Index
    return index(ndim=dim, metric="ip", dtype="f32", connectivity=_LINKS, expansion_add=_WHILE_BUILDING, expansion_search=_WHILE_SEARCHING)


def _package(name: str) -> Any:  # noqa: ANN401 - a package without types
    return importlib.import_module(name)


HNSWLIB = Kind(build=_build_hnswlib, open=HnswlibEngine, load=partial(_package, _HNSWLIB), check=partial(require, _HNSWLIB, "bench"))
USEARCH = Kind(build=_build_usearch, open=UsearchEngine, load=partial(_package, _USEARCH), check=partial(require, _USEARCH, "bench"))

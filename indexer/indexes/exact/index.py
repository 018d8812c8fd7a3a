"""Exact inner-product search directly over vectors, memory-mapped on a CPU or copied to GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wikidx.base.artifacts.checked_files import ReadableArray
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.machine.fit import ON_CPU, Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, SearchParam, SearchParams, Vectors, check_k, empty_hits, validate_queries
from wikidx.indexer.scope import NO_WORDS, Scope
from wikidx.indexer.vectors.corpus_vectors import missing_within, open_corpus_vectors

from .cpu import CpuEngine, search_few
from .memory import choose_devices

if TYPE_CHECKING:
    from .gpu import TorchEngine


_FEW_ROWS = 48  # a scope of a smaller part of the rows is read row by row


class ExactIndex:
    """Exact search over the vectors of a corpus or of a range of its rows. Thread-safe; on GPUs searches are serialised.

    The vectors are float32 or float16 of shape (rows, dim). ``missing`` lists the rows without a vector, ascending; they are never
    returned. ``first_row`` is added to the numbers of returned rows.
    """

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, vectors: ReadableArray, *, missing: Rows | None = None, placement: Placement = ON_CPU, first_row: int = 0) -> None:
        self._n_rows, self.dim = len(vectors), int(vectors.shape[1])
        self.placement, self._first_row = placement, first_row
        self._vectors, self._missing = vectors, np.empty(0, dtype=np.int64) if missing is None else missing
        self._engine = _engine(vectors, self._missing, placement)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k rows with the largest inner product for each of the (Q, dim) query vectors; of the parameters, the scope counts.

        Scores are float32. On a CPU, a score's bits do not depend on the batch; on a GPU, its last bits do.

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
            ArtifactCorrupt: a vector is corrupt.
            IdxError: a GPU has too little memory left, or has failed.
        """
        check_k(k)
        queries = validate_queries(vectors, self.dim)
        if not len(queries) or not self._n_rows:
            return empty_hits(len(queries), k)
        scope = params.scope
        words = NO_WORDS if scope is None else scope.words_within(range(self._first_row, self._first_row + self._n_rows))
        n_allowed = self._n_rows if scope is None else int(np.bitwise_count(words).sum())
        if not n_allowed:
            return empty_hits(len(queries), k)
        if isinstance(self._engine, CpuEngine) and n_allowed * _FEW_ROWS < self._n_rows:
            rows = np.setdiff1d(Scope(words, self._n_rows).rows(), self._missing, assume_unique=True)
            hits = search_few(self._vectors, rows, queries, min(k, n_allowed))
        else:
            hits = self._engine.search(queries, min(k, n_allowed), words)
        rest = empty_hits(len(queries), k - hits.rows.shape[1])
        rows = np.where(hits.rows == NO_ROW, NO_ROW, hits.rows + self._first_row)
        return Hits(np.concatenate([rows, rest.rows], axis=1), np.concatenate([hits.scores, rest.scores], axis=1))


def _engine(vectors: ReadableArray, missing: Rows, placement: Placement) -> CpuEngine | TorchEngine:
    if placement.devices == ("cpu",):
        return CpuEngine(vectors, missing)
    from .gpu import TorchEngine, load_shards  # torch takes two seconds to import

    return TorchEngine(load_shards(vectors, missing, placement.devices))


def open_exact(path: Path, manifest: Manifest, *, device: str = "auto", rows: range | None = None) -> ExactIndex:
    """Open the vectors of a corpus for exact search: memory-mapped on a CPU, copied to GPUs.

    Args:
        path: directory of the vectors.
        manifest: manifest of the vectors.
        device: see ``devices.choose_placement``.
        rows: search only these rows; None: all.

    Raises:
        ArtifactCorrupt: the vectors do not match their manifest.
        InputError: the device does not exist, or has too little memory by estimate.
        MissingExtraError: the device is a GPU, and torch is not installed.
        IdxError: a GPU failed, or ran out of memory during loading.
    """
    vectors = open_corpus_vectors(path, manifest)
    rows = range(vectors.n_rows) if rows is None else rows
    placement = choose_devices(len(rows), vectors.dim, vectors.stored, device)
    missing = missing_within(rows, vectors.missing)
    return ExactIndex(vectors.array.row_range(rows), missing=missing, placement=placement, first_row=rows.start)

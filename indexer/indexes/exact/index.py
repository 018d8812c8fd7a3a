"""Exact inner-product search straight over memory-mapped vectors, on a CPU or on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.store import Rows
from wikidx.indexer.base import (
    DEFAULT_PARAMS,
    NO_ROW,
    ON_CPU,
    Hits,
    Placement,
    SearchParam,
    SearchParams,
    Vectors,
    check_k,
    checked_queries,
    no_hits,
)
from wikidx.indexer.page_checks import ReadableArray
from wikidx.indexer.vectors.corpus_vectors import corpus_vectors

from .best_keys import LARGEST_ROW
from .cpu import CpuEngine
from .placement import VectorsSize, place

if TYPE_CHECKING:
    from .gpu import TorchEngine


class ExactIndex:
    """All vectors of a corpus, float32 or float16 of shape (rows, dim).

    ``missing`` are rows that have no vector, ascending: they are never found. ``placement`` says where the vectors are searched, and why.
    ``first_row`` is the number of the first, where the vectors are those of some rows. Several threads may search at once; on GPUs their
    searches take turns.
    """

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, vectors: ReadableArray, *, missing: Rows | None = None, placement: Placement = ON_CPU, first_row: int = 0) -> None:
        self._n_rows, self.dim = len(vectors), int(vectors.shape[1])
        self.placement, self._first_row = placement, first_row
        if self._n_rows > LARGEST_ROW:
            raise ValueError(f"{self._n_rows:,} rows: at most {LARGEST_ROW:,} can be searched")
        self._engine = _engine(vectors, np.empty(0, dtype=np.int64) if missing is None else missing, placement)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k rows with the largest inner product for each of the (Q, dim) query vectors, whatever the parameters.

        Scores are float32 sums. On a CPU they have the same bits whatever the batch; on a GPU their last bits depend on it.

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
            ArtifactDamaged: a vector is damaged.
            IdxError: a GPU has too little memory left, or has failed.
        """
        check_k(k)
        queries = checked_queries(vectors, self.dim)
        if not len(queries) or not self._n_rows:
            return no_hits(len(queries), k)
        found = self._engine.search(queries, min(k, self._n_rows))
        rest = no_hits(len(queries), k - found.rows.shape[1])
        rows = np.where(found.rows == NO_ROW, NO_ROW, found.rows + self._first_row)
        return Hits(np.concatenate([rows, rest.rows], axis=1), np.concatenate([found.scores, rest.scores], axis=1))


def _engine(vectors: ReadableArray, missing: Rows, placement: Placement) -> CpuEngine | TorchEngine:
    if placement.devices == ("cpu",):
        return CpuEngine(vectors, missing)
    from .gpu import TorchEngine, load_parts  # torch takes two seconds to import

    return TorchEngine(load_parts(vectors, missing, placement.devices))


def open_exact(path: Path, manifest: Manifest, *, device: str = "auto", rows: range | None = None) -> ExactIndex:
    """Open the vectors of a corpus for exact search: memory-mapped on a CPU, copied to GPUs.

    Args:
        path: the directory.
        manifest: its manifest.
        device: as ``placement.place`` has it; the index's ``placement`` says which device it came to, and why.
        rows: search these alone; None: all.

    Raises:
        ArtifactDamaged: they do not hold what their manifest says.
        InputError: the device is not there, or has too little memory; nothing has been loaded.
        MissingExtraError: it is a GPU, and torch is not installed.
        IdxError: a GPU ran out of memory all the same, or failed.
    """
    vectors = corpus_vectors(path, manifest)
    rows = range(vectors.n_rows) if rows is None else rows
    placement = place(VectorsSize(len(rows), vectors.dim, vectors.stored), device)
    low, high = np.searchsorted(vectors.missing, (rows.start, rows.stop))
    missing = vectors.missing[low:high] - rows.start
    return ExactIndex(vectors.array.part(rows), missing=missing, placement=placement, first_row=rows.start)

"""Exact inner-product search straight over memory-mapped vector shards, on a CPU or on GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from corpora.artifacts import Manifest
from corpora.store import Rows
from indexer.base import (
    DEFAULT_PARAMS,
    ON_CPU,
    Hits,
    Placement,
    SearchParam,
    SearchParams,
    Stored,
    StoredVectors,
    Vectors,
    check_k,
    checked_queries,
    no_hits,
)
from indexer.memory_map import map_checked
from indexer.page_checks import checked_files
from indexer.placement import VectorsSize, place
from indexer.vectors import ShardChecks, Shards, missing_of, shards_of

from .best_keys import LARGEST_ROW
from .exact_cpu import Check, CpuEngine, unchecked

if TYPE_CHECKING:
    from .exact_torch import TorchEngine


class ExactIndex:
    """All vectors of a corpus, in shards of consecutive rows, each float32 or float16 of shape (rows, dim).

    ``missing`` are rows that have no vector, ascending: they are never found. ``placement`` says where the vectors are searched, and why.
    ``check`` is called with the first row, and the one behind the last, of vectors about to be read; it raises if they are damaged.
    Several threads may search at once; on GPUs their searches take turns.
    """

    parameters: Mapping[str, SearchParam] = {}

    def __init__(
        self, shards: Sequence[StoredVectors], *, missing: Rows | None = None, placement: Placement = ON_CPU, check: Check = unchecked
    ) -> None:
        self.dim: int = shards[0].shape[1]
        self.placement = placement
        self._n_rows = sum(map(len, shards))
        if self._n_rows > LARGEST_ROW:
            raise ValueError(f"{self._n_rows:,} rows: at most {LARGEST_ROW:,} can be searched")
        self._engine = _engine(shards, np.empty(0, dtype=np.int64) if missing is None else missing, placement, check)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k rows with the largest inner product for each of the (Q, dim) query vectors, whatever the parameters.

        Scores are float32 sums. On a CPU they have the same bits whatever the batch; on a GPU their last bits depend on it.

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
            ArtifactDamaged: ``check`` raised it.
            IdxError: a GPU has too little memory left, or has failed.
        """
        check_k(k)
        queries = checked_queries(vectors, self.dim)
        if not len(queries) or not self._n_rows:
            return no_hits(len(queries), k)
        found = self._engine.search(queries, min(k, self._n_rows))
        rest = no_hits(len(queries), k - found.rows.shape[1])
        return Hits(np.concatenate([found.rows, rest.rows], axis=1), np.concatenate([found.scores, rest.scores], axis=1))


def _engine(shards: Sequence[StoredVectors], missing: Rows, placement: Placement, check: Check) -> CpuEngine | TorchEngine:
    if placement.devices == ("cpu",):
        return CpuEngine(shards, missing, check)
    from .exact_torch import TorchEngine, load_parts  # torch takes two seconds to import

    return TorchEngine(load_parts(shards, missing, placement.devices, check))


def open_shards(path: Path, manifest: Manifest, *, device: str = "auto", rows: range | None = None) -> ExactIndex:
    """Open the shards for exact search: memory-mapped on a CPU, copied to GPUs.

    Args:
        path: the directory.
        manifest: its manifest.
        device: as ``placement.place`` has it; the index's ``placement`` says which device it came to, and why.
        rows: search these alone, counted from the first of them; None: all.

    Raises:
        ArtifactDamaged: they do not hold what their manifest says.
        InputError: the device is not there, or has too little memory; nothing has been loaded.
        MissingExtraError: it is a GPU, and torch is not installed.
        IdxError: a GPU ran out of memory all the same, or failed.
    """
    (shards, stored), dim = shards_of(path, manifest), manifest.count("dim")
    rows = range(shards.n_rows) if rows is None else rows
    placement = place(VectorsSize(len(rows), dim, stored), device)
    files = checked_files(path, manifest)
    missing = missing_of(path, manifest, files)
    low, high = np.searchsorted(missing, (rows.start, rows.stop))
    checks = ShardChecks(shards, dim * np.dtype(stored).itemsize, files)

    def check(start: int, stop: int) -> None:
        checks.check_range(rows.start + start, rows.start + stop)

    return ExactIndex(list(_cut(shards, dim, stored, rows)), missing=missing[low:high] - rows.start, placement=placement, check=check)


def _cut(shards: Shards, dim: int, stored: Stored, rows: range) -> Iterator[StoredVectors]:
    """Yield the mapped vectors of some rows; an empty array if there are none."""
    for of_shard in shards.rows():
        start, stop = max(rows.start, of_shard.start), min(rows.stop, of_shard.stop)
        if start < stop:
            vectors = map_checked(shards.path(of_shard.start), (len(of_shard), dim), stored)
            yield vectors[start - of_shard.start : stop - of_shard.start]
    if not rows:
        yield np.empty((0, dim), dtype=stored)

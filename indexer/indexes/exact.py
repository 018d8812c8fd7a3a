"""Exact inner-product search straight over memory-mapped vector shards: tiles of one matrix product, then the k best of each line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corpora.store import Rows
from indexer.base import NO_ROW, Hits, Vectors, check_k
from indexer.compiled import kernel

from .selection import offer, sort_best

_TILE_SCORES = 16 << 20  # 64 MiB of float32 scores at a time
_MAX_TILE_ROWS = 65_536

StoredVectors = NDArray[np.float32] | NDArray[np.float16]


class ExactIndex:
    """All vectors of a corpus, in shards of consecutive rows, each float32 or float16 of shape (rows, dim).

    ``missing`` are rows that have no vector, ascending: they are never found.
    """

    def __init__(self, shards: Sequence[StoredVectors], *, missing: Rows | None = None) -> None:
        self._shards = shards
        self._missing = np.empty(0, dtype=np.int64) if missing is None else missing
        self.dim = shards[0].shape[1]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def search(self, vectors: Vectors, k: int) -> Hits:
        """Return the k rows with the largest inner product for each of the (Q, dim) query vectors.

        Scores are float32 sums whose last bits depend on the batch (about 1e-6 relative).

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
        """
        check_k(k)
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"query vectors of shape {vectors.shape} do not fit an index of dimension {self.dim}")
        if not np.isfinite(queries).all():
            raise ValueError(f"query vector {int(np.argwhere(~np.isfinite(queries))[0, 0])} has components that are not finite")
        best_scores = np.full((len(queries), min(k, len(self))), -np.inf, dtype=np.float32)
        best_rows = np.full(best_scores.shape, NO_ROW, dtype=np.int64)
        tile_rows = max(1, min(_MAX_TILE_ROWS, _TILE_SCORES // max(1, len(queries))))
        first_row = 0
        for shard in self._shards:
            for start in range(0, len(shard), tile_rows):
                tile = np.asarray(shard[start : start + tile_rows], dtype=np.float32)
                scores = queries @ tile.T
                scores[:, self._missing_of(first_row + start, len(tile))] = -np.inf
                _offer_tile(scores, first_row + start, best_scores, best_rows)
            first_row += len(shard)
        _sort_lines(best_scores, best_rows)
        return _padded(Hits(best_rows, best_scores), k)

    def _missing_of(self, first_row: int, n_rows: int) -> Rows:
        """Return which of the rows from ``first_row`` on have no vector, counted from there."""
        start, stop = np.searchsorted(self._missing, (first_row, first_row + n_rows))
        return self._missing[start:stop] - first_row


def _padded(hits: Hits, k: int) -> Hits:
    """Return the hits with empty places up to k."""
    missing = ((0, 0), (0, k - hits.rows.shape[1]))
    return Hits(np.pad(hits.rows, missing, constant_values=NO_ROW), np.pad(hits.scores, missing, constant_values=-np.inf))


@kernel
def _offer_tile(scores: NDArray[np.float32], first_row: int, best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]) -> None:
    for line in range(scores.shape[0]):
        offer(scores[line], first_row, np.float32(-np.inf), best_scores[line], best_rows[line])


@kernel
def _sort_lines(best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]) -> None:
    for line in range(best_scores.shape[0]):
        sort_best(best_scores[line], best_rows[line])

"""Exact scores of given rows, from the vectors on disk: what an index of compressed vectors has its candidates rescored by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.store import Rows

from .base import Scores, Vectors

_CANDIDATES_AT_ONCE = 32_768


class Rescorer:
    """The vectors of a corpus, all mapped into memory at once: if they are replaced later, these stay the ones.

    Args:
        shards: float32 or float16, each of shape (rows, dim); all but the last have the same number of rows.
        missing: rows that have no vector, ascending.
        check: called with rows, ascending, before their vectors are read; raises if they are damaged.
    """

    def __init__(self, shards: Sequence[NDArray[Any]], missing: Rows, check: Callable[[Rows], None] = lambda rows: None) -> None:
        self._shards, self._missing, self._check = shards, missing, check
        self._shard_rows, self._dim = shards[0].shape

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the inner product of each query with the vectors of its rows.

        Args:
            queries: float32, shape (Q, dim).
            rows: int64, shape (Q, C); -1 where there is none.

        Returns:
            float32, shape (Q, C); -inf where there is no row, or one that has no vector.

        Raises:
            ArtifactDamaged: a vector is damaged.
        """
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        width = min(max(1, rows.shape[1]), _CANDIDATES_AT_ONCE)
        n_queries = max(1, _CANDIDATES_AT_ONCE // width)
        for first in range(0, len(rows), n_queries):
            for start in range(0, rows.shape[1], width):
                some = np.s_[first : first + n_queries, start : start + width]
                self._score(queries[first : first + n_queries], rows[some], scores[some])
        scores[(rows < 0) | np.isin(rows, self._missing)] = -np.inf
        return scores

    def _score(self, queries: Vectors, rows: Rows, scores: Scores) -> None:
        """Write the scores of so few candidates that their vectors are held in memory together."""
        wanted, places = np.unique(rows, return_inverse=True)
        vectors = self._read(wanted)
        for line, (query, found) in enumerate(zip(queries, places.reshape(rows.shape), strict=True)):
            scores[line] = vectors[found] @ query

    def _read(self, rows: Rows) -> Vectors:
        """Return the vectors of ascending rows, float32 of shape (len(rows), dim); anything for row -1."""
        self._check(rows[rows >= 0])
        found = np.zeros((len(rows), self._dim), dtype=np.float32)
        numbers = rows // self._shard_rows
        starts = np.flatnonzero(np.diff(numbers, prepend=-2))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
            number = int(numbers[start])
            if number >= 0:
                found[start:stop] = self._shards[number][rows[start:stop] - number * self._shard_rows]
        return found

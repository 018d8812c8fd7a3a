"""Exact scores of given rows, from the vectors on disk: what an index of compressed vectors has its candidates rescored by."""

from __future__ import annotations

import numpy as np

from wikidx.corpora.store import Rows
from wikidx.indexer.base import Scores, Vectors
from wikidx.indexer.page_checks import ReadableArray

_CANDIDATES_AT_ONCE = 32_768


class Rescorer:
    """The mapped vectors of a corpus: if they are replaced later, these stay the ones.

    Args:
        vectors: float32 or float16, of shape (rows, dim).
        missing: rows that have no vector, ascending.
    """

    def __init__(self, vectors: ReadableArray, missing: Rows) -> None:
        self._vectors, self._missing = vectors, missing

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
        """Write the scores of so few candidates that their vectors are held in memory together; anything for row -1."""
        wanted, places = np.unique(rows, return_inverse=True)
        n_none = int(np.searchsorted(wanted, 0))
        if n_none == len(wanted):
            return
        vectors = self._vectors[wanted[n_none:]].astype(np.float32, copy=False)
        for line, (query, found) in enumerate(zip(queries, places.reshape(rows.shape), strict=True)):
            scores[line] = vectors[found - n_none] @ query

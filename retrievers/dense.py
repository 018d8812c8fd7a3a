"""The dense first stage: an encoder in front of a vector index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexer.base import NO_ROW, Encoder, Hits, VectorIndex


class DenseRetriever:
    """Encodes queries and searches their vectors."""

    def __init__(self, encoder: Encoder, index: VectorIndex) -> None:
        self._encoder = encoder
        self._index = index

    def retrieve(self, queries: Sequence[str], depth: int) -> Hits:
        """Return the ``depth`` best rows of each query; none for a blank one, whose vector would mean nothing."""
        rows = np.full((len(queries), depth), NO_ROW, dtype=np.int64)
        scores = np.full((len(queries), depth), -np.inf, dtype=np.float32)
        asked = [i for i, query in enumerate(queries) if query.strip()]
        if asked:
            rows[asked], scores[asked] = self._index.search(self._encoder.encode_queries([queries[i] for i in asked]), depth)
        return Hits(rows, scores)

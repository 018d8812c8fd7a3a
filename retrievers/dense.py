"""The dense retriever: an encoder in front of a vector index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from wikidx.corpora.errors import InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Encoder, Hits, Scores, SearchParam, SearchParams, VectorIndex, Vectors, no_hits

_MAX_KEPT = 8192  # query vectors


class ExactScores(Protocol):
    """Scores given rows by the stored embeddings; see ``indexer.vectors.corpus_vectors.CorpusVectors``."""

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return float32 scores of rows, both of shape (Q, C), for query vectors; -inf for row -1 and rows without a vector."""
        ...


class DenseRetriever:
    """Encodes queries and searches their vectors; its search parameters are those of the index.

    Args:
        encoder: of the queries.
        index: finds rows, exactly or not.
        exact: uncompressed vectors to score given rows by; None: not available.
    """

    def __init__(self, encoder: Encoder, index: VectorIndex, exact: ExactScores | None = None) -> None:
        self._encoder = encoder
        self._index = index
        self._exact = exact
        self._kept: Mapping[str, Vectors] = {}  # vectors of the latest search: rescored queries were mostly just searched for
        self.parameters: Mapping[str, SearchParam] = index.parameters

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows of each query; none for a blank one, whose vector has no meaning."""
        hits = no_hits(len(queries), depth)
        asked = [i for i, query in enumerate(queries) if query.strip()]
        if asked:
            vectors = self._encoder.encode_queries([queries[i] for i in asked])
            hits.rows[asked], hits.scores[asked] = self._index.search(vectors, depth, params)
            self._kept = dict(zip([queries[i] for i in asked], vectors[:_MAX_KEPT].copy(), strict=False))
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the exact scores of given rows, ascending, for each query; -inf for rows without a vector, and for a blank query.

        Raises:
            InputError: the vectors are missing.
        """
        if self._exact is None:
            raise InputError(
                "rerank is 'root', but the vectors that the index was made of are not there to score passages by: build them again"
            )
        scores = [np.full(len(of_query), -np.inf, dtype=np.float32) for of_query in rows]
        asked = [i for i, query in enumerate(queries) if query.strip()]
        if asked:
            vectors = self._vectors([queries[i] for i in asked])
            padded = np.full((len(asked), max(len(rows[i]) for i in asked)), NO_ROW, dtype=np.int64)
            for line, i in enumerate(asked):
                padded[line, : len(rows[i])] = rows[i]
            for i, found in zip(asked, self._exact.scores(vectors, padded), strict=True):
                scores[i] = found[: len(rows[i])]
        return scores

    def _vectors(self, queries: Sequence[str]) -> Vectors:
        """Return the queries' vectors; those of the latest search are reused."""
        kept = self._kept  # another thread may replace it
        missing = list(dict.fromkeys(query for query in queries if query not in kept))
        known = {**kept, **dict(zip(missing, self._encoder.encode_queries(missing), strict=True))} if missing else kept
        return np.stack([known[query] for query in queries])

"""The dense retriever: a query encoder and a vector index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Encoder, Hits, Scores, SearchParam, SearchParams, VectorIndex, Vectors, empty_hits

_MAX_LATEST = 8192  # number of query vectors that are kept for ``rescore``


class ExactScores(Protocol):
    """Stored vectors that score given rows; see ``indexer.vectors.corpus_vectors.CorpusVectors``."""

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the scores of given rows for each query vector, float32; -inf for row -1 and for rows without a vector.

        Args:
            queries: query vectors of shape (Q, dim).
            rows: rows for each query, shape (Q, C), which is also the shape of the scores.
        """
        ...


class DenseRetriever:
    """An encoder and a vector index that answer queries; the search parameters are those of the index.

    Args:
        encoder: encoder of the queries.
        index: an exact or approximate vector index.
        exact: uncompressed vectors for ``rescore``; None: not available.

    Attributes:
        encoder: the encoder.
    """

    def __init__(self, encoder: Encoder, index: VectorIndex, exact: ExactScores | None = None) -> None:
        self.encoder = encoder
        self._index = index
        self._exact = exact
        self._latest: Mapping[str, Vectors] = {}  # query vectors of the latest search, which ``rescore`` reuses
        self.parameters: Mapping[str, SearchParam] = index.parameters

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query; none for a blank query, whose vector is meaningless."""
        hits = empty_hits(len(queries), depth)
        nonblank = [i for i, query in enumerate(queries) if query.strip()]
        if nonblank:
            vectors = self.encoder.encode_queries([queries[i] for i in nonblank])
            hits.rows[nonblank], hits.scores[nonblank] = self._index.search(vectors, depth, params)
            self._latest = dict(zip([queries[i] for i in nonblank], vectors[:_MAX_LATEST].copy(), strict=False))
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the exact scores of given rows for each query; -inf for rows without a vector, and for a blank query.

        Raises:
            InputError: the vectors are missing.
        """
        if self._exact is None:
            raise InputError(
                "rerank is 'primary', but the vectors that the index was made of are not there to score passages by: build them again"
            )
        scores = [np.full(len(of_query), -np.inf, dtype=np.float32) for of_query in rows]
        nonblank = [i for i, query in enumerate(queries) if query.strip()]
        if nonblank:
            vectors = self._encode([queries[i] for i in nonblank])
            padded = np.full((len(nonblank), max(len(rows[i]) for i in nonblank)), NO_ROW, dtype=np.int64)
            for n, i in enumerate(nonblank):
                padded[n, : len(rows[i])] = rows[i]
            for i, row_scores in zip(nonblank, self._exact.scores(vectors, padded), strict=True):
                scores[i] = row_scores[: len(rows[i])]
        return scores

    def _encode(self, queries: Sequence[str]) -> Vectors:
        """Return the queries' vectors, reusing vectors of the latest search."""
        latest = self._latest  # another thread may replace the attribute meanwhile
        missing = list(dict.fromkeys(query for query in queries if query not in latest))
        vectors_by_query = {**latest, **dict(zip(missing, self.encoder.encode_queries(missing), strict=True))} if missing else latest
        return np.stack([vectors_by_query[query] for query in queries])

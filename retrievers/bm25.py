"""The lexical retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wikidx.corpora.passage import Rows
from wikidx.indexer.analysis.analyzer import AnalyzerFailed
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, LexicalIndex, Scores, SearchParam, SearchParams

from .vector_queries import QueriesRefused


class BM25Retriever:
    """A lexical index that answers queries; a blank query has no terms, hence no results."""

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, index: LexicalIndex) -> None:
        self._index = index

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query; of the parameters, the scope counts, because the search is exact.

        Raises:
            QueriesRefused: the analyzer fails for queries.
        """
        try:
            return self._index.search(queries, depth, params.scope)
        except AnalyzerFailed as error:
            raise QueriesRefused({queries[position]: reason for position, reason in error.reasons.items()}) from error

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query; -inf for a row without any term of the query."""
        return self._index.rescore(queries, rows)

"""The lexical retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, LexicalIndex, Scores, SearchParam, SearchParams


class BM25Retriever:
    """A lexical index that answers queries; a blank query has no terms, hence no results."""

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, index: LexicalIndex) -> None:
        self._index = index

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query; of the parameters, the scope counts, because the search is exact."""
        return self._index.search(queries, depth, params.scope)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query; -inf for a row without any term of the query."""
        return self._index.rescore(queries, rows)

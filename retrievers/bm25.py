"""The lexical first stage."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.base import Hits, LexicalIndex


class BM25Retriever:
    """Searches a lexical index; a blank query has no terms and so finds nothing."""

    def __init__(self, index: LexicalIndex) -> None:
        self._index = index

    def retrieve(self, queries: Sequence[str], depth: int) -> Hits:
        """Return the ``depth`` best rows of each query."""
        return self._index.search(queries, depth)

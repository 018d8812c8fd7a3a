"""A retriever that caches recent results in bounded memory."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Scores, SearchParam, SearchParams, no_hits

from .base import Retriever
from .cancellation import lost_rows

_ENTRY_BYTES = 500  # overhead of an entry beyond its numbers and its query: two arrays, a key, its place in the order
_Key = tuple[str, int, SearchParams]


class CachedRetriever:
    """LRU cache in front of a retriever: searches only for queries that it has not answered recently with the same depth and parameters.

    Results depend on the index, the retriever, the query, the depth and the parameters. The first two are the wrapped object, which never
    changes; the others are the key: entries never need invalidation. Thread-safe.

    Args:
        retriever: the wrapped retriever.
        max_bytes: approximate memory limit of the cache.

    Attributes:
        n_hits: queries answered from the cache so far.
        n_misses: queries searched for so far.
    """

    def __init__(self, retriever: Retriever, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}: without memory there is no cache")
        self._retriever = retriever
        self._max_bytes = max_bytes
        self.parameters: Mapping[str, SearchParam] = retriever.parameters
        self._lock = threading.Lock()  # protects all attributes below
        self._entries = OrderedDict[_Key, Hits]()
        self._n_bytes = 0
        self.n_hits = self.n_misses = 0

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows of each query; parameters that the wrapped retriever lacks are ignored."""
        known = self._known(queries, depth, params)
        missing = list(dict.fromkeys(query for query in queries if query not in known))
        if missing:
            found = self._retriever.retrieve(missing, depth, params)
            for line, query in enumerate(missing):
                known[query] = Hits(*(_filled(part[line], found.rows[line]) for part in found))
            if lost_rows() is None:  # a partial answer must not be cached
                self._remember({(query, depth, params): known[query] for query in missing})
        hits = no_hits(len(queries), depth)
        for line, query in enumerate(queries):
            rows, scores = known[query]
            hits.rows[line, : len(rows)], hits.scores[line, : len(rows)] = rows, scores
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query; not cached."""
        return self._retriever.rescore(queries, rows)

    def _known(self, queries: Sequence[str], depth: int, params: SearchParams) -> dict[str, Hits]:
        known = {}
        with self._lock:
            for query in queries:
                entry = self._entries.get((query, depth, params))
                if entry is not None:
                    self._entries.move_to_end((query, depth, params))
                    known[query] = entry
            self.n_hits += sum(query in known for query in queries)
            self.n_misses += sum(query not in known for query in queries)
        return known

    def _remember(self, found: dict[_Key, Hits]) -> None:
        with self._lock:
            for key, hits in found.items():
                if key not in self._entries:  # another thread may have added it
                    self._n_bytes += _n_bytes(key[0], hits)
                self._entries[key] = hits
            while self._n_bytes > self._max_bytes:
                key, hits = self._entries.popitem(last=False)
                self._n_bytes -= _n_bytes(key[0], hits)


def _filled(part: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return a copy of the filled places, so that an entry does not keep its whole batch alive."""
    return part[: np.count_nonzero(rows != NO_ROW)].copy()


def _n_bytes(query: str, hits: Hits) -> int:
    return _ENTRY_BYTES + sys.getsizeof(query) + hits.rows.nbytes + hits.scores.nbytes

"""A retriever that caches recent results in bounded memory."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Scores, SearchParam, SearchParams, empty_hits

from .base import Retriever
from .cancellation import unsearched_rows

# Size of an entry without its numbers and its query: two array objects, a key, a link of the LRU order.
_ENTRY_BYTES = 500
_Key = tuple[str, int, SearchParams]


class CachedRetriever:
    """A retriever with an LRU cache of its results; thread-safe.

    Query, depth and parameters are the key of a result. The wrapped retriever searches only for the queries that are not cached. The
    wrapped retriever and its index never change, so that cached results stay valid.

    Args:
        retriever: the wrapped retriever.
        max_bytes: approximate memory limit of the cache.

    Attributes:
        encoder: the encoder of a dense retriever; None for others.
        n_hits: number of queries answered from the cache.
        n_misses: number of queries not in the cache.
    """

    def __init__(self, retriever: Retriever, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}: without memory there is no cache")
        self._retriever = retriever
        self._max_bytes = max_bytes
        self.parameters: Mapping[str, SearchParam] = retriever.parameters
        self.encoder = getattr(retriever, "encoder", None)
        self._lock = threading.Lock()  # protects all attributes below
        self._entries = OrderedDict[_Key, Hits]()
        self._n_bytes = 0
        self.n_hits = self.n_misses = 0

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query; parameters that the wrapped retriever lacks are ignored."""
        known = self._look_up(queries, depth, params)
        missing = list(dict.fromkeys(query for query in queries if query not in known))
        if missing:
            results = self._retriever.retrieve(missing, depth, params)
            for n, query in enumerate(missing):
                known[query] = Hits(*(_copy_filled(column[n], results.rows[n]) for column in results))
            if unsearched_rows() is None:  # an answer that may be partial is not cached
                self._store({(query, depth, params): known[query] for query in missing})
        hits = empty_hits(len(queries), depth)
        for n, query in enumerate(queries):
            rows, scores = known[query]
            hits.rows[n, : len(rows)], hits.scores[n, : len(rows)] = rows, scores
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query; not cached."""
        return self._retriever.rescore(queries, rows)

    def _look_up(self, queries: Sequence[str], depth: int, params: SearchParams) -> dict[str, Hits]:
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

    def _store(self, results: dict[_Key, Hits]) -> None:
        with self._lock:
            for key, hits in results.items():
                if key not in self._entries:  # another thread may have added the entry
                    self._n_bytes += _n_bytes(key[0], hits)
                self._entries[key] = hits
            while self._n_bytes > self._max_bytes:
                key, hits = self._entries.popitem(last=False)
                self._n_bytes -= _n_bytes(key[0], hits)


def _copy_filled(column: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return a copy of the filled slots; a view would keep the whole batch in memory."""
    return column[: np.count_nonzero(rows != NO_ROW)].copy()


def _n_bytes(query: str, hits: Hits) -> int:
    return _ENTRY_BYTES + sys.getsizeof(query) + hits.rows.nbytes + hits.scores.nbytes

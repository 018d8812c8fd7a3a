"""A vector index whose ranges of rows are searched remotely and in parallel, every range once for a batch of queries.

It is a vector index for ``DenseRetriever`` with the results of the whole index: queries are encoded once, in the process that answers the
request, and all later steps are the same as on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Placement, Scores, SearchParams, Vectors
from wikidx.indexer.indexes.exact.best_keys import merge_hits
from wikidx.retrievers.base import NotSearched
from wikidx.retrievers.cancellation import lost_rows
from wikidx.retrievers.errors import ShardUnavailable

from .shard import Answer, Description, Rescore, Search, Timed


class Call(Protocol[Answer]):
    """A started call of a shard."""

    def answer(self) -> Timed[Answer]:
        """Wait for the answer; raises ``ShardUnavailable`` if no replica answers."""
        ...

    def cancel(self) -> None:
        """Cancel the call if it is not answered."""
        ...


class Shard(Protocol):
    """A range of rows that is searched remotely."""

    ranges: Mapping[str, range]
    """Which rows of each index it has."""

    def search(self, asked: Search) -> Call[Hits]:
        """Start a search."""
        ...

    def rescore(self, asked: Rescore) -> Call[Scores]:
        """Start scoring given rows of the range."""
        ...


Observe = Callable[[float, float], None]
"""Called after a search with the seconds of its slowest range, and those that it took beyond these."""


class ShardedIndex:
    """A vector index; see ``indexer.base.VectorIndex``.

    The candidates to rescore (``refine``) are the best over all ranges, as in the whole index, and not of each.

    Args:
        key: key of the index in calls.
        shards: consecutive ranges that cover all its rows.
        description: components of a vector, parameters of its searches.
        observe: called after each search.
    """

    def __init__(
        self, key: str, shards: Sequence[Shard], description: Description, observe: Observe = lambda slowest_s, beyond_s: None
    ) -> None:
        self._key, self._observe = key, observe
        self.dim, self.parameters = description
        self.placement = Placement((), f"'{key}' in {len(shards)} shards")
        self._shards = [(rows, shard) for shard in shards if len(rows := shard.ranges[key])]
        self._n_rows = max((rows.stop for rows, _ in self._shards), default=0)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors.

        Raises:
            InputError: a parameter exceeds the index's limit, or the vectors for rescoring are missing.
            ShardUnavailable: a range cannot be searched, and the search must not be partial.
        """
        known = self.parameters.get("refine")
        refine = 0 if known is None else known.default if params.refine is None else params.refine
        if known is None or not refine or refine > known.largest:  # a shard refuses these
            return self._found(vectors, k, params)
        width = min(k, len(self)) * refine
        rows = self._found(vectors, min(width, len(self)), SearchParams(nprobe=params.nprobe, ef_search=params.ef_search, refine=0)).rows
        scores = self.scores(vectors, rows)
        return merge_hits([Hits(np.where(np.isneginf(scores), NO_ROW, rows), scores)], len(vectors), k)

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return exact scores of given rows; see ``indexer.vectors.corpus_vectors.CorpusVectors``. Raises as ``search`` does."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        calls, places = {}, {}
        for here, shard in self._shards:
            is_here = (rows >= here.start) & (rows < here.stop)
            counts = is_here.sum(axis=1)
            which = np.flatnonzero(counts)
            if len(which):
                order = np.argsort(~is_here[which], axis=1, kind="stable")[:, : counts.max()]
                mine = np.where(
                    np.arange(order.shape[1]) < counts[which, np.newaxis], np.take_along_axis(rows[which], order, axis=1), NO_ROW
                )
                calls[here] = shard.rescore(Rescore(self._key, queries[which], mine))
                places[here] = which, order, mine
        for here, found in self._answers(calls).items():
            which, order, mine = places[here]
            lines, columns = np.nonzero(mine != NO_ROW)
            scores[which[lines], order[lines, columns]] = found.value[lines, columns]
        return scores

    def _found(self, vectors: Vectors, k: int, params: SearchParams) -> Hits:
        """Search all ranges."""
        if not len(vectors):
            return merge_hits([], 0, k)
        started = time.perf_counter()
        asked = Search(self._key, vectors, min(k, len(self)), params)
        parts = self._answers({rows: shard.search(asked) for rows, shard in self._shards})
        hits = merge_hits([found.value for found in parts.values()], len(vectors), k)
        slowest_s = max((found.seconds for found in parts.values()), default=0.0)
        self._observe(slowest_s, time.perf_counter() - started - slowest_s)
        return hits

    def _answers(self, calls: dict[range, Call[Answer]]) -> dict[range, Timed[Answer]]:
        """Wait for all answers; in a partial search, unavailable ranges are left out and recorded."""
        found, lost = {}, lost_rows()
        try:
            for rows, call in calls.items():
                try:
                    found[rows] = call.answer()
                except ShardUnavailable:
                    if lost is None:
                        raise
                    lost.add(NotSearched(self._key.rpartition("/")[2], rows.start, rows.stop))
        finally:
            for call in calls.values():
                call.cancel()
        return found

"""A vector index whose shards are searched remotely and in parallel, each once for a batch of queries.

``DenseRetriever`` uses this index like an unsharded index, with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from wikidx.base.machine.fit import Placement
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Scores, SearchParams, Vectors
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.retrievers.base import UnsearchedRows
from wikidx.retrievers.cancellation import unsearched_rows
from wikidx.retrievers.errors import ShardUnavailable

from .shard import Answer, Description, ShardRescore, ShardSearch, TimedAnswer


class Call(Protocol[Answer]):
    """A pending call to a shard."""

    def result(self) -> TimedAnswer[Answer]:
        """Wait for the answer; raises ``ShardUnavailable`` if no replica answers."""
        ...

    def cancel(self) -> None:
        """Cancel the call unless it is answered."""
        ...


class Shard(Protocol):
    """A remote shard, with a range of rows of each index."""

    ranges: Mapping[str, range]
    """Range of rows of each index, by the index's key."""

    def search(self, request: ShardSearch) -> Call[Hits]:
        """Start a search."""
        ...

    def rescore(self, request: ShardRescore) -> Call[Scores]:
        """Start scoring given rows."""
        ...


Observe = Callable[[float, float], None]
"""Function called after a search with two durations in seconds: of the slowest shard, and of the rest of the search."""


class ShardedIndex:
    """An ``indexer.base.VectorIndex`` over several shards.

    The candidates to rescore (``refine``) are the best rows of all shards together, as in an unsharded index.

    Args:
        key: key of the index in requests to shards.
        shards: shards whose consecutive ranges cover all rows.
        description: dimension of the vectors, and search parameters of the index.
        observe: called after each search; see ``Observe``.
    """

    def __init__(
        self, key: str, shards: Sequence[Shard], description: Description, observe: Observe = lambda slowest_s, overhead_s: None
    ) -> None:
        self._key, self._observe = key, observe
        self.dim, self.parameters = description
        self.placement = Placement((), f"'{key}' in {len(shards)} shards")
        self._shards = [(rows, shard) for shard in shards if len(rows := shard.ranges[key])]
        self._n_rows = max((rows.stop for rows, _ in self._shards), default=0)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each query vector; ``vectors`` has shape (Q, dim).

        Raises:
            InputError: a parameter exceeds the index's limit, or the vectors for rescoring are missing.
            ShardUnavailable: a shard cannot be searched, and the search may not be partial.
        """
        known = self.parameters.get("refine")
        refine = 0 if known is None else known.default if params.refine is None else params.refine
        if known is None or not refine or refine > known.maximum:  # no rescoring; each shard refuses a value above the maximum
            return self._search_shards(vectors, k, params)
        width = min(k, len(self)) * refine
        unrefined = SearchParams(nprobe=params.nprobe, ef_search=params.ef_search, refine=0)
        rows = self._search_shards(vectors, min(width, len(self)), unrefined).rows
        scores = self.scores(vectors, rows)
        return merge_hits([Hits(np.where(np.isneginf(scores), NO_ROW, rows), scores)], len(vectors), k)

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the exact scores of given rows; see ``retrievers.dense.ExactScores``. Raises as ``search`` does."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        calls, positions = {}, {}
        for shard_rows, shard in self._shards:
            is_in_shard = (rows >= shard_rows.start) & (rows < shard_rows.stop)
            counts = is_in_shard.sum(axis=1)
            numbers = np.flatnonzero(counts)
            if len(numbers):
                order = np.argsort(~is_in_shard[numbers], axis=1, kind="stable")[:, : counts.max()]
                padded = np.where(
                    np.arange(order.shape[1]) < counts[numbers, np.newaxis], np.take_along_axis(rows[numbers], order, axis=1), NO_ROW
                )
                calls[shard_rows] = shard.rescore(ShardRescore(self._key, queries[numbers], padded))
                positions[shard_rows] = numbers, order, padded
        for shard_rows, result in self._wait_for_results(calls).items():
            numbers, order, padded = positions[shard_rows]
            lines, columns = np.nonzero(padded != NO_ROW)
            scores[numbers[lines], order[lines, columns]] = result.value[lines, columns]
        return scores

    def _search_shards(self, vectors: Vectors, k: int, params: SearchParams) -> Hits:
        if not len(vectors):
            return merge_hits([], 0, k)
        started = time.perf_counter()
        request = ShardSearch(self._key, vectors, min(k, len(self)), params)
        results = self._wait_for_results({rows: shard.search(request) for rows, shard in self._shards})
        hits = merge_hits([result.value for result in results.values()], len(vectors), k)
        slowest_s = max((result.seconds for result in results.values()), default=0.0)
        self._observe(slowest_s, time.perf_counter() - started - slowest_s)
        return hits

    def _wait_for_results(self, calls: dict[range, Call[Answer]]) -> dict[range, TimedAnswer[Answer]]:
        """Return the answers by range; a partial search leaves out unavailable ranges and records them."""
        results, unsearched = {}, unsearched_rows()
        try:
            for rows, call in calls.items():
                try:
                    results[rows] = call.result()
                except ShardUnavailable:
                    if unsearched is None:
                        raise
                    unsearched.add(UnsearchedRows(self._key.rpartition("/")[2], rows.start, rows.stop))
        finally:
            for call in calls.values():
                call.cancel()
        return results

"""A vector index whose shards are searched remotely and in parallel, each once for a batch of queries.

``DenseRetriever`` uses this index like an unsharded index, with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from wikidx.base.machine.fit import Placement
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Scores, SearchParams, Vectors
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.retrievers.base import UnsearchedRows
from wikidx.retrievers.cancellation import unsearched_rows
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

from .replicas import Call, Shard
from .shard import Description


class ShardedIndex:
    """An ``indexer.base.VectorIndex`` over several shards.

    The candidates to rescore (``refine``) are the best rows of all shards together, as in an unsharded index.

    Args:
        key: key of the index in requests to shards.
        shards: shards whose consecutive ranges cover all rows.
        description: dimension of the vectors, and search parameters of the index.
        metrics: times of searches.
    """

    def __init__(self, key: str, shards: Sequence[Shard], description: Description, metrics: Metrics) -> None:
        self._key, self._metrics = key, metrics
        self.dim, self.parameters = description
        self.placement = Placement((), f"'{key}' in {len(shards)} shards")
        self._shards = {rows: shard for shard in shards if len(rows := shard.ranges[key].rows)}
        self._n_rows = max((rows.stop for rows in self._shards), default=0)

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
        calls, places = dict[range, Call](), {}
        for shard_rows, shard in self._shards.items():
            is_in_shard = (rows >= shard_rows.start) & (rows < shard_rows.stop)
            numbers, counts = np.flatnonzero(is_in_shard.any(axis=1)), is_in_shard.sum(axis=1)
            if len(numbers):
                columns = np.argsort(~is_in_shard[numbers], axis=1, kind="stable")[:, : counts.max()]  # the shard's rows are in front
                padded = np.where(np.arange(counts.max()) < counts[numbers, np.newaxis], rows[numbers[:, np.newaxis], columns], NO_ROW)
                calls[shard_rows] = shard.call("scores", self._key, queries[numbers], padded)
                places[shard_rows] = numbers[:, np.newaxis], columns, padded != NO_ROW
        for shard_rows, (found, _) in self._wait_for_results(calls).items():
            lines, columns, is_row = places[shard_rows]
            scores[np.broadcast_to(lines, is_row.shape)[is_row], columns[is_row]] = found[is_row]
        return scores

    def _search_shards(self, vectors: Vectors, k: int, params: SearchParams) -> Hits:
        if not len(vectors):
            return merge_hits([], 0, k)
        started = time.perf_counter()
        calls = {rows: shard.call("search", self._key, vectors, min(k, len(self)), params) for rows, shard in self._shards.items()}
        results = self._wait_for_results(calls)
        hits = merge_hits([found for found, _ in results.values()], len(vectors), k)
        for rows, (_, seconds) in results.items():
            self._metrics.shard_seconds.labels(self._shards[rows].number).observe(seconds)
        slowest_s = max((seconds for _, seconds in results.values()), default=0.0)
        self._metrics.shard_overhead_seconds.observe(max(0.0, time.perf_counter() - started - slowest_s))
        return hits

    def _wait_for_results(self, calls: dict[range, Call]) -> dict[range, tuple[Any, float]]:
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

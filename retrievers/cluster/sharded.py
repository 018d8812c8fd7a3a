"""A vector index whose shards are searched remotely and in parallel, each once for a batch of queries; calls survive lost replicas.

``DenseRetriever`` uses this index like an unsharded index, with the same results. Replicas are plain Ray actors. Ray Serve would replace
them one by one, so that a search could merge results of an old and a new index, and calls all shards in 12 ms instead of 4.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wikidx.base.cluster import load_ray
from wikidx.base.errors import ArtifactError
from wikidx.base.machine.fit import Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Scores, SearchParams, Vectors
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.retrievers.base import UnsearchedRows
from wikidx.retrievers.cancellation import raise_if_cancelled, search_deadline, unsearched_rows
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

from .shard import Description, Index, ShardRange, State

_RETRY_AFTER_S = 2
_MARGIN_S = 1.0  # time between the end of a call and the deadline of the search, for a partial answer
_MARGIN_FRACTION = 0.25  # limit of this margin, as a fraction of the remaining time
_POLL_S = 0.25  # interval of checks for cancellation while waiting
_MIN_WAIT_S = 0.01  # enough to receive an arrived answer, even after the deadline


@dataclass(slots=True, eq=False)
class Replica:
    """One process that holds a shard: Ray's handle, whether calls are sent to it, its state as last reported, and its indexes."""

    handle: Any
    is_ready: bool = False
    state: State = State("unknown", 0, 0)
    indexes: Mapping[Index, Description] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Shard:
    """A range of rows of each index, held by several replicas, which take turns; thread-safe."""

    number: int
    ranges: Mapping[Index, ShardRange]
    replicas: Sequence[Replica]
    n_calls: int = 0

    def ready_replicas(self) -> Iterator[Replica]:
        """Yield the replicas that are ready when they are asked for; shards begin differently, and so on different nodes."""
        self.n_calls += 1
        first = (self.number + self.n_calls) % len(self.replicas)
        return (replica for replica in (*self.replicas[first:], *self.replicas[:first]) if replica.is_ready)


class ShardedIndex:
    """An ``indexer.base.VectorIndex`` over shards whose consecutive ranges cover all rows.

    The candidates to rescore (``refine``) are the best rows of all shards together, as in an unsharded index. A call takes ``timeout_s``
    seconds at most, less if ``search_deadline`` is earlier.
    """

    def __init__(self, index: Index, shards: Sequence[Shard], timeout_s: float, metrics: Metrics) -> None:
        self._index, self._timeout_s, self._metrics = index, timeout_s, metrics
        self.dim, self.parameters = shards[0].replicas[0].indexes[index]
        self.placement = Placement((), f"'{'/'.join(index)}' in {len(shards)} shards")
        self._shards = {shard: rows for shard in shards if len(rows := shard.ranges[index].rows)}
        self._n_rows = max((rows.stop for rows in self._shards.values()), default=0)

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
        # No rescoring; each shard refuses a value above the maximum.
        if known is None or not refine or refine > known.maximum:
            return self._search_shards(vectors, k, params)
        width = min(k, len(self)) * refine
        rows = self._search_shards(vectors, min(width, len(self)), dataclasses.replace(params, refine=0)).rows
        scores = self.scores(vectors, rows)
        return merge_hits([Hits(np.where(np.isneginf(scores), NO_ROW, rows), scores)], len(vectors), k)

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the exact scores of given rows; see ``retrievers.dense.ExactScores``. Raises as ``search`` does."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        arguments, places = dict[Shard, tuple[Any, ...]](), {}
        for shard, shard_rows in self._shards.items():
            is_in_shard = (rows >= shard_rows.start) & (rows < shard_rows.stop)
            width = int(is_in_shard.sum(axis=1).max(initial=0))
            if width:
                columns = np.argsort(~is_in_shard, axis=1, kind="stable")[:, :width]  # the shard's rows are in front
                is_row = np.take_along_axis(is_in_shard, columns, axis=1)
                arguments[shard] = queries, np.where(is_row, np.take_along_axis(rows, columns, axis=1), NO_ROW)
                places[shard] = (*np.nonzero(is_row), columns[is_row])
        for shard, (found, _) in self._call("scores", arguments).items():
            lines, positions, columns = places[shard]
            scores[lines, columns] = found[lines, positions]
        return scores

    def _search_shards(self, vectors: Vectors, k: int, params: SearchParams) -> Hits:
        if not len(vectors):
            return merge_hits([], 0, k)
        started = time.perf_counter()
        answers = self._call("search", dict.fromkeys(self._shards, (vectors, min(k, len(self)), params)))
        hits = merge_hits([found for found, _ in answers.values()], len(vectors), k)
        for shard, (_, seconds) in answers.items():
            self._metrics.shard_seconds.labels(shard.number).observe(seconds)
        slowest_s = max((seconds for _, seconds in answers.values()), default=0.0)
        self._metrics.shard_overhead_seconds.observe(max(0.0, time.perf_counter() - started - slowest_s))
        return hits

    def _call(self, method: str, arguments: Mapping[Shard, tuple[Any, ...]]) -> dict[Shard, tuple[Any, float]]:
        """Return the answers of several shards' ``OpenRange``, and their times in seconds."""
        return ShardCalls(method, self._index, arguments, self._timeout_s, self._metrics).answers()


class ShardCalls:
    """Calls of a method of ``shard.OpenRange`` on several shards at once, which go to another replica if one is lost."""

    def __init__(self, method: str, index: Index, arguments: Mapping[Shard, tuple[Any, ...]], timeout_s: float, metrics: Metrics) -> None:
        self._ray, self._metrics = load_ray(), metrics
        self._method, self._index, self._arguments = method, index, arguments
        self._started = time.monotonic()
        left_s = search_deadline() - self._started
        self._deadline = self._started + min(timeout_s, left_s - min(_MARGIN_S, _MARGIN_FRACTION * left_s))
        self._untried = {shard: shard.ready_replicas() for shard in arguments}
        self._pending: dict[Any, tuple[Shard, Replica]] = {}  # by Ray's reference
        self._answers: dict[Shard, tuple[Any, float]] = {}

    def answers(self) -> dict[Shard, tuple[Any, float]]:
        """Wait for the answers, and return each with the shard's time in seconds; a partial search leaves out unavailable shards.

        Raises:
            ShardUnavailable: no replica of a shard answers in time, and the search may not be partial.
            DeadlineExceeded: the search is cancelled.
            IdxError: the search fails in a shard.
        """
        try:
            for shard in self._arguments:
                self._send(shard, "")
            while self._pending:
                wait_s = max(_MIN_WAIT_S, min(self._deadline - time.monotonic(), _POLL_S))
                ready, late = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=wait_s)
                for reference in ready:
                    self._receive(reference)
                for reference in late:
                    self._check(reference)
            return self._answers
        finally:
            for reference in self._pending:
                self._ray.cancel(reference)

    def _send(self, shard: Shard, reason: str) -> None:
        """Call the next replica of a shard; if there is none, leave the shard out for the reason that the last one is lost."""
        replica = next(self._untried[shard], None)
        if replica is None:
            self._leave_out(shard, f"all of its replicas are lost{reason}")
        else:
            reference = replica.handle.call.remote(self._method, self._index, *self._arguments[shard])
            self._pending[reference] = shard, replica

    def _receive(self, reference: Any) -> None:  # noqa: ANN401 - Ray's
        shard, replica = self._pending.pop(reference)
        try:
            self._answers[shard] = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if cause is not None and not isinstance(cause, ArtifactError):
                raise cause from error
            # The process ended, or cannot open its index after a restart; until its next health check.
            replica.is_ready = False
            self._metrics.shard_failures.labels(shard.number).inc()
            self._send(shard, f" (node {replica.state.node}: {cause or type(error).__name__})")

    def _check(self, reference: Any) -> None:  # noqa: ANN401 - Ray's
        """Give up a call that has no answer if the search is cancelled, the time is over, or the replica is silent."""
        raise_if_cancelled()
        shard, replica = self._pending[reference]
        is_over = time.monotonic() >= self._deadline
        if is_over or not replica.is_ready:
            self._ray.cancel(reference)  # a call that waits in the replica's queue does not start
            del self._pending[reference]
        if is_over:
            self._leave_out(shard, f"there was no answer within {max(round(self._deadline - self._started, 2), 0.01):g} s")
        elif not replica.is_ready:
            self._send(shard, f" (node {replica.state.node}: it no longer reports its state)")

    def _leave_out(self, shard: Shard, reason: str) -> None:
        """Count and record the rows of a shard that no replica searches; raises ``ShardUnavailable`` if the search may not be partial."""
        self._metrics.shard_unavailable.labels(shard.number).inc()
        unsearched, rows = unsearched_rows(), shard.ranges[self._index].rows
        if unsearched is not None:
            unsearched.add(UnsearchedRows(self._index[1], rows.start, rows.stop))
            return
        cuts = ", ".join(f"rows {cut.rows.start:,} to {cut.rows.stop - 1:,} of '{'/'.join(cut.key)}'" for cut in shard.ranges.values())
        raise ShardUnavailable(
            f"shard {shard.number} ({cuts}) cannot be searched: {reason}; ask again in a while, or with partial=true do without it",
            retry_after=_RETRY_AFTER_S,
        )

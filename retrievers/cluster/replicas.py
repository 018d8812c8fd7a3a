"""Replicas of a shard: health checks, and calls that survive the loss of a replica.

Replicas are plain Ray actors, not Ray Serve deployments. Serve replaces replicas one by one, so that a search could merge results of an old
and a new index. A call to all shards takes 12 ms through Serve's handles, and 4 ms with actors. Ray itself restarts lost actors, on another
node if their node is lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from wikidx.base.errors import ArtifactError, IdxError
from wikidx.indexer.base import Hits, Scores
from wikidx.indexer.embedding.cluster.nodes import Node, list_nodes, load_ray
from wikidx.retrievers.cancellation import raise_if_cancelled, search_deadline
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

from .shard import Answer, ShardRange, ShardRescore, ShardSearch, State, TimedAnswer

_LOG = logging.getLogger("idx.server")

_SILENCE_S = 5.0  # a process without a health report for this long counts as lost
_STATE_S = 0.5  # wait for health reports; the next check receives later reports
_RETRY_AFTER_S = 2
_MARGIN_S = 1.0  # time between the end of a call and the deadline of the search, for a partial answer
_MARGIN_FRACTION = 0.25  # limit of this margin, as a fraction of the remaining time
_POLL_S = 0.25  # interval of checks for cancellation while waiting
_MIN_WAIT_S = 0.01  # enough to receive an arrived answer, even after the deadline


@dataclass(slots=True, eq=False)
class Replica:
    """One process that holds a shard.

    Attributes:
        number: index among the shard's replicas.
        node: the node of the process.
        handle: Ray's actor handle.
        is_ready: whether calls are sent to the replica.
        state: the last reported state; None before the first report.
        health_check: the pending health check and its start time; None: no check is pending.
    """

    number: int
    node: Node
    handle: Any
    is_ready: bool = False
    state: State | None = None
    health_check: tuple[Any, float] | None = None


class ReplicatedShard:
    """A ``sharded.Shard`` with several replicas; thread-safe.

    Args:
        number: the shard's number.
        ranges: the range of rows of each index.
        replicas: the processes that hold the ranges.
        timeout_s: time limit of a call in seconds, unless ``search_deadline`` is earlier.
        metrics: counts and times of calls.
    """

    def __init__(self, number: int, ranges: Sequence[ShardRange], replicas: Sequence[Replica], timeout_s: float, metrics: Metrics) -> None:
        self.number, self.replicas, self.timeout_s = number, list(replicas), timeout_s
        self.ranges: Mapping[str, range] = {shard_range.key: shard_range.rows for shard_range in ranges}
        self.metrics = metrics
        self._turn = number  # selects the next replica; differs between shards, so that not all start with the same node

    def search(self, request: ShardSearch) -> ReplicaCall[Hits]:
        """Start a search; see ``Shard``."""
        return ReplicaCall(self, "search", request)

    def rescore(self, request: ShardRescore) -> ReplicaCall[Scores]:
        """Start scoring given rows; see ``Shard``."""
        return ReplicaCall(self, "rescore", request)

    def next_replica(self, exclude: Collection[Replica]) -> Replica | None:
        """Return the next ready replica outside ``exclude``; None if there is none."""
        self._turn += 1
        ready = [replica for replica in self.replicas if replica.is_ready and replica not in exclude]
        return ready[self._turn % len(ready)] if ready else None

    def mark_lost(self, replica: Replica) -> None:
        """Stop calls to a replica until its next successful health check."""
        replica.is_ready = False
        self.metrics.shard_failures.labels(self.number).inc()

    def unavailable_error(self, reason: str) -> ShardUnavailable:
        """Count a call that no replica answers, and return its error."""
        self.metrics.shard_unavailable.labels(self.number).inc()
        ranges = ", ".join(f"rows {rows.start:,} to {rows.stop - 1:,} of '{key}'" for key, rows in self.ranges.items())
        return ShardUnavailable(
            f"shard {self.number} ({ranges}) cannot be searched: {reason}; ask again in a while, or with partial=true do without it",
            retry_after=_RETRY_AFTER_S,
        )


class _ReplicaLost(Exception):
    """The called replica is lost and will not answer."""


class ReplicaCall(Generic[Answer]):
    """A ``sharded.Call`` that tries the replicas of a shard one after the other until one answers."""

    def __init__(self, shard: ReplicatedShard, method: str, argument: ShardSearch | ShardRescore) -> None:
        self._shard, self._method, self._argument = shard, method, argument
        self._ray = load_ray()
        self._started = time.monotonic()
        left_s = search_deadline() - self._started
        self._deadline = self._started + min(shard.timeout_s, left_s - min(_MARGIN_S, _MARGIN_FRACTION * left_s))
        self._tried: list[Replica] = []
        self._reference: Any = None  # Ray's reference of the pending call
        self._call_next()

    def result(self) -> TimedAnswer[Answer]:
        """Wait for the answer.

        Raises:
            ShardUnavailable: no replica answers in time.
            DeadlineExceeded: the search is cancelled.
            IdxError: the search fails in the shard.
        """
        reason = "all of its replicas are lost"
        while self._reference is not None:
            try:
                return self._wait(self._tried[-1])
            except _ReplicaLost as lost:
                reason = f"all of its replicas are lost (node {self._tried[-1].node.address}: {lost})"
            finally:
                self.cancel()
            self._call_next()
        raise self._shard.unavailable_error(reason)

    def cancel(self) -> None:
        """Cancel the call unless it is answered; a call that waits in the replica's queue does not start."""
        if self._reference is not None:
            self._ray.cancel(self._reference)
            self._reference = None

    def _call_next(self) -> None:
        """Call the next untried replica, if any."""
        replica = self._shard.next_replica(self._tried)
        if replica is not None:
            self._tried.append(replica)
            self._reference = getattr(replica.handle, self._method).remote(self._argument)

    def _wait(self, replica: Replica) -> TimedAnswer[Answer]:
        """Wait for a replica's answer; raises ``_ReplicaLost`` if the replica is lost."""
        while True:
            try:
                left_s = self._deadline - time.monotonic()
                result: TimedAnswer[Answer] = self._ray.get(self._reference, timeout=max(_MIN_WAIT_S, min(left_s, _POLL_S)))
            except self._ray.exceptions.GetTimeoutError:
                raise_if_cancelled()
                if time.monotonic() >= self._deadline:
                    raise self._shard.unavailable_error(f"there was no answer within {self._deadline - self._started:.3g} s") from None
                if not replica.is_ready:
                    raise _ReplicaLost("it no longer reports its state") from None
            except self._ray.exceptions.RayError as error:
                raise self._interpret_error(replica, error) from error
            else:
                self._reference = None
                if self._method == "search":
                    self._shard.metrics.shard_seconds.labels(self._shard.number).observe(result.seconds)
                return result

    def _interpret_error(self, replica: Replica, error: Exception) -> Exception:
        """Return ``_ReplicaLost`` if the error means that the replica is lost, else the error of the search."""
        self._reference = None
        cause = getattr(error, "cause", None)
        if cause is None or isinstance(cause, ArtifactError):  # the process ended, or cannot open its index after a restart
            self._shard.mark_lost(replica)
            return _ReplicaLost(str(cause or type(error).__name__))
        if isinstance(cause, IdxError | ValueError | TypeError):
            return cause
        return IdxError(f"shard {self._shard.number} failed on node {replica.node.address}: {type(cause).__name__}")


def check_replicas(shards: Sequence[ReplicatedShard]) -> None:
    """Check the health of all replicas; resume calls to replicas that report, and stop calls to lost or silent replicas."""
    ray, now = load_ray(), time.monotonic()
    pairs = [(shard, replica) for shard in shards for replica in shard.replicas]
    for _, replica in pairs:
        if replica.health_check is None:
            replica.health_check = replica.handle.state.options(concurrency_group="state").remote(), now
    health_checks = [(shard, replica, *replica.health_check) for shard, replica in pairs if replica.health_check is not None]
    finished, _ = ray.wait([reference for *_, reference, _ in health_checks], num_returns=len(health_checks), timeout=_STATE_S)
    answered = set(finished)
    for shard, replica, reference, started in health_checks:
        if reference in answered:
            replica.health_check = None
            _record_health(shard, replica, _read_state(replica, reference))
        elif time.monotonic() - started >= _SILENCE_S:
            _record_health(shard, replica, f"no report for {time.monotonic() - started:.0f} s")


def _read_state(replica: Replica, reference: Any) -> str | None:  # noqa: ANN401 - Ray's
    """Record the state that a replica reports; return the reason if the replica is lost, else None."""
    ray = load_ray()
    try:
        replica.state = state = ray.get(reference)
    except ray.exceptions.RayError as error:
        return str(getattr(error, "cause", error))
    if state.node != replica.node.id:  # Ray has restarted the replica on another node
        replica.node = next((node for node in list_nodes() if node.id == state.node), replica.node)
    return None


def _record_health(shard: ReplicatedShard, replica: Replica, lost_reason: str | None) -> None:
    """Record whether a replica is ready, and log changes; ``lost_reason`` is None for a replica that answers."""
    was_ready, replica.is_ready = replica.is_ready, lost_reason is None
    if was_ready is not replica.is_ready:
        status = "answers again" if lost_reason is None else f"is lost: {lost_reason}"
        _LOG.warning("shard %d, replica %d on node %s %s", shard.number, replica.number, replica.node.address, status)

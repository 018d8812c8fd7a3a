"""Replicas of a shard: health checks, and calls that survive the loss of a replica.

Replicas are plain Ray actors, which Ray starts again, on another node if theirs is lost. Ray Serve would replace replicas one by one, so
that a search could merge results of an old and a new index, and calls all shards in 12 ms instead of 4. Ray reports the end of a process at
once, but not that it hangs, and the loss of a machine after half a minute: health checks find both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wikidx.base.cluster import ProcessLost, load_ray, node_address
from wikidx.base.errors import ArtifactError
from wikidx.retrievers.cancellation import raise_if_cancelled, search_deadline
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

from .shard import Description, ShardRange

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
        handle: Ray's actor handle.
        is_ready: whether calls are sent to the replica.
        node_id, node: Ray's id and the address of its node, as last reported.
        state: process id and resident bytes, as last reported.
        health_check: the pending health check and its start time; None: no check is pending.
    """

    handle: Any
    is_ready: bool = False
    node_id: str = ""
    node: str = "unknown"
    state: dict[str, int] = field(default_factory=dict)
    health_check: tuple[Any, float] | None = None

    def move(self, node_id: str) -> None:
        """Record the node of the process, which Ray may have started again on another."""
        if node_id != self.node_id:
            self.node_id, self.node = node_id, node_address(node_id)


class Shard:
    """A range of rows of each index, held by several replicas; thread-safe.

    Args:
        number: the shard's number.
        ranges: the range of rows of each index, by the index's key.
        replicas: the processes that hold the ranges.
        timeout_s: time limit of a call in seconds, unless ``search_deadline`` is earlier.
        metrics: counts and times of calls.
    """

    def __init__(
        self, number: int, ranges: Mapping[str, ShardRange], replicas: Sequence[Replica], timeout_s: float, metrics: Metrics
    ) -> None:
        self.number, self.ranges, self.replicas, self.timeout_s, self.metrics = number, ranges, replicas, timeout_s, metrics
        self.descriptions: Mapping[str, Description] = {}  # of the indexes by key, once the shard is open
        self._turn = number  # selects the next replica; differs between shards, so that not all start with the same node

    def call(self, method: str, key: str, *arguments: Any) -> Call:  # noqa: ANN401 - passed on
        """Start a call of a method of ``shard.OpenRange``."""
        return Call(self, (method, key, *arguments))

    def next_replica(self, exclude: Sequence[Replica]) -> Replica | None:
        """Return the next ready replica outside ``exclude``; None if there is none."""
        self._turn += 1
        ready = [replica for replica in self.replicas if replica.is_ready and replica not in exclude]
        return ready[self._turn % len(ready)] if ready else None

    def unavailable_error(self, reason: str) -> ShardUnavailable:
        """Count a call that no replica answers, and return its error."""
        self.metrics.shard_unavailable.labels(self.number).inc()
        ranges = ", ".join(f"rows {cut.rows.start:,} to {cut.rows.stop - 1:,} of '{key}'" for key, cut in self.ranges.items())
        return ShardUnavailable(
            f"shard {self.number} ({ranges}) cannot be searched: {reason}; ask again in a while, or with partial=true do without it",
            retry_after=_RETRY_AFTER_S,
        )


class Call:
    """A pending call to a shard, whose replicas it tries one after the other until one answers."""

    def __init__(self, shard: Shard, arguments: tuple[Any, ...]) -> None:
        self._ray, self._shard, self._arguments = load_ray(), shard, arguments
        self._started = time.monotonic()
        left_s = search_deadline() - self._started
        self._deadline = self._started + min(shard.timeout_s, left_s - min(_MARGIN_S, _MARGIN_FRACTION * left_s))
        self._tried = list[Replica]()
        self._reference: Any = None  # Ray's reference of the pending call
        self._call_next()

    def _call_next(self) -> None:
        """Call the next untried replica, if any."""
        replica = self._shard.next_replica(self._tried)
        if replica is not None:
            self._tried.append(replica)
            self._reference = replica.handle.call.remote(*self._arguments)

    def result(self) -> tuple[Any, float]:
        """Wait for the answer, and return it and the shard's time in seconds.

        Raises:
            ShardUnavailable: no replica answers in time.
            DeadlineExceeded: the search is cancelled.
            IdxError: the search fails in the shard.
        """
        reason = "all of its replicas are lost"
        while self._reference is not None:
            replica = self._tried[-1]
            try:
                return self._wait(replica)
            except ProcessLost as lost:
                reason = f"all of its replicas are lost (node {replica.node}: {lost})"
            finally:
                self.cancel()
            self._call_next()
        raise self._shard.unavailable_error(reason)

    def cancel(self) -> None:
        """Cancel the call unless it is answered; a call that waits in the replica's queue does not start."""
        if self._reference is not None:
            self._ray.cancel(self._reference)
            self._reference = None

    def _wait(self, replica: Replica) -> tuple[Any, float]:
        """Wait for a replica's answer; raises ``ProcessLost`` if the replica is lost."""
        while True:
            try:
                wait_s = max(_MIN_WAIT_S, min(self._deadline - time.monotonic(), _POLL_S))
                answer: tuple[Any, float] = self._ray.get(self._reference, timeout=wait_s)
                self._reference = None
                return answer
            except self._ray.exceptions.GetTimeoutError:
                raise_if_cancelled()
                if time.monotonic() >= self._deadline:
                    raise self._shard.unavailable_error(f"there was no answer within {self._deadline - self._started:.3g} s") from None
                if not replica.is_ready:
                    raise ProcessLost("it no longer reports its state") from None
            except self._ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if cause is not None and not isinstance(cause, ArtifactError):
                    raise cause from error
                replica.is_ready = False  # the process ended, or cannot open its index after a restart; until its next health check
                self._shard.metrics.shard_failures.labels(self._shard.number).inc()
                raise ProcessLost(str(cause or type(error).__name__)) from error


def check_replicas(shards: Sequence[Shard]) -> None:
    """Check the health of all replicas; resume calls to replicas that report, and stop calls to lost or silent replicas."""
    ray, now = load_ray(), time.monotonic()
    checks = dict[Any, tuple[Shard, Replica, float]]()
    for shard in shards:
        for replica in shard.replicas:
            if replica.health_check is None:
                replica.health_check = replica.handle.state.options(concurrency_group="state").remote(), now
            checks[replica.health_check[0]] = shard, replica, replica.health_check[1]
    ray.wait(list(checks), num_returns=len(checks), timeout=_STATE_S)
    for call, (shard, replica, started) in checks.items():
        lost = ""
        try:
            node_id, replica.state = ray.get(call, timeout=0)
            replica.move(node_id)
            replica.health_check = None
        except ray.exceptions.GetTimeoutError:
            if time.monotonic() - started < _SILENCE_S:
                continue
            lost = f"no report for {time.monotonic() - started:.0f} s"
        except ray.exceptions.RayError as error:
            replica.health_check, lost = None, str(getattr(error, "cause", error))
        was_ready, replica.is_ready = replica.is_ready, not lost
        if was_ready is not replica.is_ready:
            status = f"is lost: {lost}" if lost else "answers again"
            _LOG.warning("shard %d, replica %d on node %s %s", shard.number, shard.replicas.index(replica), replica.node, status)

"""Replicas of a shard: health checks, and calls that survive the loss of a replica.

Replicas are plain Ray actors, not Ray Serve deployments, because one search needs all shards to be of one index: Serve replaces
replicas one by one, so that answers of an old and a new index would be merged. A fan-out through its handles also takes three times as
long (12 ms, against 4 ms with actors). The rest of Serve would add little: Ray itself restarts lost actors, on another node if theirs is
gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from wikidx.corpora.errors import ArtifactError, IdxError
from wikidx.indexer.base import Hits, Scores
from wikidx.indexer.embedding.cluster.nodes import Node, load_ray, nodes
from wikidx.retrievers.cancellation import check_wanted, wanted_until
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.server.metrics import Metrics

from .shard import Answer, Holding, Rescore, Search, State, Timed

_LOG = logging.getLogger("idx.server")

_SILENT_S = 5.0  # time without a health report after which a process counts as lost
_STATE_S = 0.5  # time in which most processes report
_RETRY_AFTER_S = 2
_MARGIN_S = 1.0  # before the deadline a shard is given up, so that an answer without its rows is in time, ...
_MARGIN_SHARE = 0.25  # ... or this share of the remaining time, if that is less
_SLICE_S = 0.25  # between a waiting caller's checks for cancellation
_LEAST_WAIT_S = 0.01  # enough to receive an answer that has arrived, even after the deadline


@dataclass(slots=True, eq=False)
class Replica:
    """One process that holds a shard.

    Attributes:
        number: index among the shard's replicas.
        node: its node.
        handle: Ray's actor handle.
        is_ready: whether its last health check succeeded, so that it receives calls.
        state: its last reported state.
        asked: the pending health check and its start time; None: none is pending.
    """

    number: int
    node: Node
    handle: Any
    is_ready: bool = False
    state: State | None = None
    asked: tuple[Any, float] | None = None


class ReplicatedShard:
    """A ``sharded.Shard`` held by several processes; thread-safe.

    Args:
        number: the shard's.
        holdings: its ranges.
        replicas: the processes.
        timeout_s: timeout of a call, unless ``wanted_until`` is earlier.
        metrics: counts the calls.
    """

    def __init__(self, number: int, holdings: Sequence[Holding], replicas: Sequence[Replica], timeout_s: float, metrics: Metrics) -> None:
        self.number, self.replicas, self.timeout_s = number, list(replicas), timeout_s
        self.ranges: Mapping[str, range] = {holding.key: holding.rows for holding in holdings}
        self.metrics = metrics
        self._turn = number  # so that shards do not all start with the same node

    def search(self, asked: Search) -> ReplicaCall[Hits]:
        """Start a search; see ``Shard``."""
        return ReplicaCall(self, "search", asked)

    def rescore(self, asked: Rescore) -> ReplicaCall[Scores]:
        """Start scoring given rows; see ``Shard``."""
        return ReplicaCall(self, "rescore", asked)

    def next_replica(self, but: Collection[Replica]) -> Replica | None:
        """Return the next ready replica that this call has not tried, None if there is none."""
        self._turn += 1
        ready = [replica for replica in self.replicas if replica.is_ready and replica not in but]
        return ready[self._turn % len(ready)] if ready else None

    def lose(self, replica: Replica) -> None:
        """Send a replica no more calls until its next successful health check."""
        replica.is_ready = False
        self.metrics.shard_failures.labels(self.number).inc()

    def unavailable(self, reason: str) -> ShardUnavailable:
        """Return the error for a call that no replica answers."""
        self.metrics.shard_unavailable.labels(self.number).inc()
        rows = ", ".join(f"rows {found.start:,} to {found.stop - 1:,} of '{key}'" for key, found in self.ranges.items())
        return ShardUnavailable(
            f"shard {self.number} ({rows}) cannot be searched: {reason}; ask again in a while, or with partial=true do without it",
            retry_after=_RETRY_AFTER_S,
        )


class _Lost(Exception):
    """A replica is lost and will not answer."""


class ReplicaCall(Generic[Answer]):
    """One call to a shard, tried on one replica after the other until one answers; see ``sharded.Call``."""

    def __init__(self, shard: ReplicatedShard, method: str, argument: Search | Rescore) -> None:
        self._shard, self._method, self._argument = shard, method, argument
        self._ray = load_ray()
        self._begun = time.monotonic()
        left_s = wanted_until() - self._begun
        self._ends = self._begun + min(shard.timeout_s, left_s - min(_MARGIN_S, _MARGIN_SHARE * left_s))
        self._asked: list[Replica] = []
        self._reference: Any = None  # Ray's reference of the pending call
        self._ask()

    def answer(self) -> Timed[Answer]:
        """Wait for the answer.

        Raises:
            ShardUnavailable: no replica answers in time.
            DeadlineExceeded: the search is cancelled.
            IdxError: an error of the shard itself.
        """
        reason = "all of its replicas are lost"
        while self._reference is not None:
            try:
                return self._wait(self._asked[-1])
            except _Lost as lost:
                reason = f"all of its replicas are lost (node {self._asked[-1].node.address}: {lost})"
            finally:
                self.cancel()
            self._ask()
        raise self._shard.unavailable(reason)

    def cancel(self) -> None:
        """Cancel the call if it is not answered; a call still in the replica's queue does not start."""
        if self._reference is not None:
            self._ray.cancel(self._reference)
            self._reference = None

    def _ask(self) -> None:
        """Call a replica that has not been tried, if there is one."""
        replica = self._shard.next_replica(self._asked)
        if replica is not None:
            self._asked.append(replica)
            self._reference = getattr(replica.handle, self._method).remote(self._argument)

    def _wait(self, replica: Replica) -> Timed[Answer]:
        """Wait for a replica; raises ``_Lost`` if it will not answer."""
        while True:
            try:
                left_s = self._ends - time.monotonic()
                found: Timed[Answer] = self._ray.get(self._reference, timeout=max(_LEAST_WAIT_S, min(left_s, _SLICE_S)))
            except self._ray.exceptions.GetTimeoutError:
                check_wanted()
                if time.monotonic() >= self._ends:
                    raise self._shard.unavailable(f"there was no answer within {self._ends - self._begun:.3g} s") from None
                if not replica.is_ready:
                    raise _Lost("it does not say any more how it is") from None
            except self._ray.exceptions.RayError as error:
                raise self._failure(replica, error) from error
            else:
                self._reference = None
                if self._method == "search":
                    self._shard.metrics.shard_seconds.labels(self._shard.number).observe(found.seconds)
                return found

    def _failure(self, replica: Replica, error: Exception) -> Exception:
        """Return the meaning of a replica's error: a lost replica, or an error of the search itself."""
        self._reference = None
        cause = getattr(error, "cause", None)
        if cause is None or isinstance(cause, ArtifactError):  # Ray has restarted it, and it found another index, or none
            self._shard.lose(replica)
            return _Lost(str(cause or type(error).__name__))
        if isinstance(cause, IdxError | ValueError | TypeError):
            return cause
        return IdxError(f"shard {self._shard.number} failed on node {replica.node.address}: {type(cause).__name__}")


def watch(shards: Sequence[ReplicatedShard]) -> None:
    """Check the health of all replicas: those that Ray has restarted receive calls again, those that do not answer no more."""
    ray, now = load_ray(), time.monotonic()
    pairs = [(shard, replica) for shard in shards for replica in shard.replicas]
    for _, replica in pairs:
        if replica.asked is None:
            replica.asked = replica.handle.state.options(concurrency_group="state").remote(), now
    asked = [(shard, replica, *replica.asked) for shard, replica in pairs if replica.asked is not None]
    done, _ = ray.wait([reference for *_, reference, _ in asked], num_returns=len(asked), timeout=_STATE_S)
    answered = set(done)
    for shard, replica, reference, since in asked:
        if reference in answered:
            replica.asked = None
            _note(shard, replica, _lost_because(replica, reference))
        elif time.monotonic() - since >= _SILENT_S:
            _note(shard, replica, f"it has said nothing for {time.monotonic() - since:.0f} s")


def _lost_because(replica: Replica, reference: Any) -> str | None:  # noqa: ANN401 - Ray's
    """Record a replica's state; return the reason why it is lost, None if it is not."""
    ray = load_ray()
    try:
        replica.state = state = ray.get(reference)
    except ray.exceptions.RayError as error:
        return str(getattr(error, "cause", error))
    if state.node != replica.node.id:  # its node was lost, and Ray has restarted it elsewhere
        replica.node = next((node for node in nodes() if node.id == state.node), replica.node)
    return None


def _note(shard: ReplicatedShard, replica: Replica, lost_because: str | None) -> None:
    """Record whether a replica answers, and log a change."""
    was_ready, replica.is_ready = replica.is_ready, lost_because is None
    if was_ready is not replica.is_ready:
        said = "answers again" if lost_because is None else f"is lost: {lost_because}"
        _LOG.warning("shard %d, replica %d on node %s %s", shard.number, replica.number, replica.node.address, said)

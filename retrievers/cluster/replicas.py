"""The processes that hold a shard, as Ray actors, and how one of them is asked so that the loss of another is not noticed.

Plain actors, not Ray Serve's deployments, because one search needs all shards to be of one index: Serve exchanges replicas one by one, so
that answers of an old and a new index would be merged. A fan-out through its handles takes three times as long as well (12 ms where actors
take 4). What Serve would do besides is little here: Ray itself starts lost actors again, elsewhere if their node is gone.
"""

from __future__ import annotations

import enum
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from corpora.errors import ArtifactError, IdxError
from indexer.base import Hits, limit_threads, n_threads
from indexer.cluster.nodes import Node, load_ray, pinned
from retrievers.cancellation import check_wanted, wanted_until
from retrievers.errors import ShardUnavailable

from .shard import Holding, OpenShard, name_of
from .sharded import Asked, AskedRows, Described, Timed

SEARCHES_AT_ONCE = 8
_HEDGE_S = 0.25  # without an answer for so long, and for ...
_HEDGE_TIMES = 4.0  # ... so many times what calls take, another replica is asked as well
_OF_LATEST = 0.1  # share of the latest call in what they take
_LARGE_BYTES = 100_000  # of queries: handed to Ray once for all shards, not with each call
_RETRY_AFTER_S = 2
_MARGIN_S = 1.0  # before an answer is wanted a shard is given up, so that one without its rows comes in time, ...
_MARGIN_SHARE = 0.25  # ... or so much of what is left of the time, if that is less
_SLICE_S = 0.25  # after which who waits looks whether to go on
_OPEN_AGAIN_S = 5.0  # after what could not be opened is tried again
_LEAST_WAIT_S = 0.01  # for an answer that is already here, however late it is
_SWITCH_S = 5e-5  # as in a server: a thread that comes back from a kernel gets the interpreter at once, not after 5 ms


class State(NamedTuple):
    """How a process is: its number, its node, what it was asked, and its memory."""

    pid: int
    node: str
    searches: int
    queries: int
    seconds: float
    resident_bytes: int


class ShardActor:
    """What runs in an actor: opens the ranges, at the start and whenever Ray starts it again, and searches them.

    Args:
        holdings: the ranges.
        home: the data home.
        n_per_node: such actors on a node, which share its processors.
    """

    def __init__(self, holdings: Sequence[Holding], home: str, n_per_node: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        os.environ["IDX_HOME"] = home
        limit_threads(max(1, n_threads() // n_per_node))
        os.environ["OMP_NUM_THREADS"] = str(n_threads())  # Ray sets 1, before FAISS is loaded
        self._holdings = holdings
        self._shard: OpenShard | None = None
        self._failure: Exception | None = None
        self._open_at = 0.0  # not before, if it could not be
        self._lock = threading.Lock()
        self._searches, self._queries, self._seconds = 0, 0, 0.0
        self._open()

    def described(self) -> dict[str, Described]:
        """Return what is open; raises what kept it from being opened."""
        if self._failure is not None:
            raise self._failure
        return self._opened().described

    def search(self, asked: Asked) -> Timed[Hits]:
        """Search one range."""
        found = self._opened().search(asked)
        with self._lock:
            self._searches, self._queries, self._seconds = (
                self._searches + 1,
                self._queries + len(asked.queries),
                self._seconds + found.seconds,
            )
        return found

    def rescore(self, asked: AskedRows) -> Timed[Any]:
        """Score given rows of one range."""
        return self._opened().rescore(asked)

    def state(self) -> State:
        """Return how it is; what could not be opened, as when a node comes back before its files, is opened if it can be by now."""
        if self._shard is None and time.monotonic() >= self._open_at:
            self._open()
        self._opened()
        node = load_ray().get_runtime_context().get_node_id()
        return State(os.getpid(), node, self._searches, self._queries, self._seconds, _resident_bytes())

    def _open(self) -> None:
        try:
            self._shard, self._failure = OpenShard(self._holdings), None
        except Exception as error:  # told where it is asked: Ray does not start an actor again whose constructor has raised
            self._failure, self._open_at = error, time.monotonic() + _OPEN_AGAIN_S

    def _opened(self) -> OpenShard:
        if self._shard is None:
            raise ShardUnavailable(f"it is not open: {self._failure}")
        return self._shard


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


class Health(enum.Enum):
    """What was last known of a process; one that is late is asked if there is no other, one that is lost not until it answers again."""

    READY = "ready"
    LATE = "late"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class Replica:
    """One process that holds a shard.

    Attributes:
        number: among those of the shard.
        node: where it is.
        handle: Ray's.
        health: what was last known of it.
        n_in_flight: calls that are waited for.
        state: what it last said.
        asked: the call that asks for the next, and when that was made; None: there is none.
    """

    number: int
    node: Node
    handle: Any
    health: Health = Health.LOST
    n_in_flight: int = 0
    state: State | None = None
    asked: tuple[Any, float] | None = None


@dataclass(slots=True)
class Counts:
    """What a shard's calls came to since that was last taken: seconds of searches, calls that a replica or that none answered."""

    seconds: list[float] = field(default_factory=list)
    n_failed: int = 0
    n_unavailable: int = 0


def start_actor(holdings: Sequence[Holding], node: Node, *, home: str, n_per_node: int, n_gpus: float) -> Any:  # noqa: ANN401
    """Start an actor on a node; it opens its ranges while others start."""
    actor = load_ray().remote(
        num_cpus=0,  # it holds memory for as long as it lives; processors are shared as on one machine
        num_gpus=n_gpus,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=SEARCHES_AT_ONCE,
        concurrency_groups={"state": 1},  # whoever asks how it is does not queue behind searches
        scheduling_strategy=pinned(node, soft=True),
    )(ShardActor)
    return actor.remote(list(holdings), home, n_per_node)


class ReplicatedShard:
    """A ``Shard`` that several processes hold; may be used by several threads.

    Args:
        number: the shard's.
        holdings: its ranges.
        replicas: the processes.
        timeout_s: until an answer must be there, unless ``wanted_until`` says that it is wanted sooner.
    """

    def __init__(self, number: int, holdings: Sequence[Holding], replicas: Sequence[Replica], timeout_s: float) -> None:
        self.number, self.replicas = number, list(replicas)
        self.ranges: Mapping[str, range] = {name_of(holding.corpus, holding.name): holding.rows for holding in holdings}
        self.timeout_s = timeout_s
        self._lock = threading.Lock()  # protects what is below, and the replicas' numbers
        self._counts = Counts()
        self._typical_s = 0.0  # that calls take
        self._turn = number  # that not all shards begin with the same node

    def range_of(self, name: str) -> range:
        """Return which rows of an index it has."""
        return self.ranges[name]

    def search(self, asked: Asked) -> Callable[[], Timed[Hits]]:
        """Begin to search for what is asked, or for a reference to it; see ``Shard``."""
        call = self._begun("search", asked)

        def answer() -> Timed[Hits]:
            found: Timed[Hits] = call()
            with self._lock:
                self._counts.seconds.append(found.seconds)
            return found

        return answer

    def rescore(self, asked: AskedRows) -> Callable[[], Timed[Any]]:
        """Begin to score given rows; see ``Shard``."""
        return self._begun("rescore", asked)

    def take_counts(self) -> Counts:
        """Return the counts, and begin anew."""
        with self._lock:
            counts, self._counts = self._counts, Counts()
        return counts

    def _begun(self, method: str, asked: Asked | AskedRows) -> Callable[[], Any]:
        call = _Call(self, method, asked)
        call.ask_another()
        return call.answer

    def next_replica(self, but: Sequence[Replica]) -> Replica | None:
        """Return the ready replica with the least to do that has not been asked, else one that is late, None if there is none."""
        with self._lock:
            self._turn += 1
            order = [self.replicas[(self._turn + i) % len(self.replicas)] for i in range(len(self.replicas))]
            possible = [one for one in order if one.health is not Health.LOST and one not in but]
            found = min(possible, key=lambda one: (one.health is Health.LATE, one.n_in_flight), default=None)
            if found is not None:
                found.n_in_flight += 1
            return found

    def done(self, replica: Replica, *, is_lost: bool) -> None:
        """Note that a call of a replica has ended."""
        with self._lock:
            replica.n_in_flight -= 1
            if is_lost:
                replica.health = Health.LOST
                self._counts.n_failed += 1

    @property
    def hedge_s(self) -> float:
        """After how many seconds without an answer another replica is asked as well."""
        return max(_HEDGE_S, _HEDGE_TIMES * self._typical_s)

    def answered(self, seconds: float) -> None:
        """Note how long a call took the replica that answered it."""
        with self._lock:
            self._typical_s += _OF_LATEST * (seconds - self._typical_s)

    def unavailable(self, reason: str) -> ShardUnavailable:
        """Return the error for a call that nobody answers."""
        with self._lock:
            self._counts.n_unavailable += 1
        rows = ", ".join(f"rows {found.start:,} to {found.stop - 1:,} of '{name}'" for name, found in self.ranges.items())
        return ShardUnavailable(
            f"shard {self.number} ({rows}) cannot be searched: {reason}; ask again in a while, or with partial=true do without it",
            retry_after=_RETRY_AFTER_S,
        )


class _Call:
    """One call to a shard, of one replica after the other until one answers."""

    def __init__(self, shard: ReplicatedShard, method: str, argument: object) -> None:
        self._shard, self._method, self._argument = shard, method, argument
        self._ray = load_ray()
        self._begun = time.monotonic()
        self._ends = _end(self._begun, shard.timeout_s)
        self._next_at = self._begun  # when another replica is asked as well
        self._asked: list[Replica] = []
        self._pending: dict[Any, Replica] = {}
        self._last = "all of its replicas are lost"

    def ask_another(self) -> bool:
        """Ask a replica that has not been asked, if there is one."""
        self._next_at = time.monotonic() + self._shard.hedge_s
        replica = self._shard.next_replica(self._asked)
        if replica is None:
            return False
        self._asked.append(replica)
        self._pending[getattr(replica.handle, self._method).remote(self._argument)] = replica
        return True

    def answer(self) -> Any:  # noqa: ANN401 - what the method returns
        """Wait for the first answer.

        Raises:
            ShardUnavailable: no replica answers in time.
            DeadlineExceeded: nobody waits for it any more.
            IdxError: what the shard itself raises.
        """
        try:
            while self._pending or self.ask_another():
                now = time.monotonic()
                found = self._within(max(_LEAST_WAIT_S, min(self._ends - now, max(self._next_at - now, _LEAST_WAIT_S), _SLICE_S)))
                if found is not None:
                    self._shard.answered(found.seconds)
                    return found
                if self._pending:
                    self._check_going_on()
            raise self._shard.unavailable(self._last)
        finally:
            for replica in self._pending.values():
                self._shard.done(replica, is_lost=False)

    def _check_going_on(self) -> None:
        """Ask another replica if it is time to; raise if to wait on is in vain."""
        check_wanted()
        now = time.monotonic()
        if now >= self._ends:
            raise self._shard.unavailable(f"there was no answer within {self._ends - self._begun:.3g} s")
        is_hopeless = all(replica.health is Health.LOST for replica in self._pending.values())
        if (is_hopeless or now >= self._next_at) and not self.ask_another() and is_hopeless:
            raise self._shard.unavailable("none of its replicas says any more how it is")

    def _within(self, seconds: float) -> Any:  # noqa: ANN401
        """Return what a replica answers within so long, None if none does, or if the first one to is lost."""
        if len(self._pending) > 1:
            done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
            return self._taken(done[0], _SLICE_S) if done else None
        return self._taken(next(iter(self._pending)), seconds)  # which takes less time than to wait first

    def _taken(self, reference: Any, seconds: float) -> Any:  # noqa: ANN401
        """Return what a replica answers within so long, None if it does not, or is lost."""
        replica = self._pending[reference]
        try:
            found = self._ray.get(reference, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            return None
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ArtifactError | ShardUnavailable):  # Ray has started it again, and it found another index, or none
                return self._lost(reference, str(error.cause))
            if isinstance(error.cause, IdxError | ValueError | TypeError):
                raise error.cause from error
            raise IdxError(f"shard {self._shard.number} failed on node {replica.node.address}: {type(error.cause).__name__}") from error
        except self._ray.exceptions.RayError as error:
            return self._lost(reference, type(error).__name__)
        self._shard.done(self._pending.pop(reference), is_lost=False)
        return found

    def _lost(self, reference: Any, reason: str) -> None:  # noqa: ANN401
        replica = self._pending.pop(reference)
        self._shard.done(replica, is_lost=True)
        self._last = f"all of its replicas are lost (node {replica.node.address}: {reason})"


def _end(now: float, timeout_s: float) -> float:
    """Return when to give a call up: some time before the answer is wanted."""
    left_s = wanted_until() - now
    return now + min(timeout_s, left_s - min(_MARGIN_S, _MARGIN_SHARE * left_s))


def shared(asked: Asked) -> Asked:
    """Return what is handed to all shards: large queries as a reference that Ray resolves, so that they are sent to each node once."""
    if isinstance(asked.queries, np.ndarray) and asked.queries.nbytes > _LARGE_BYTES:
        reference: Asked = load_ray().put(asked)
        return reference
    return asked

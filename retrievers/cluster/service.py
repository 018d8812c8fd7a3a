"""Serving from a cluster: the processes of all shards, looked after, and exchanged as a whole for new ones when there is a new index.

A generation is all processes over the indexes as they were built at one time. A search is of one generation: rows of an old and a new index
never meet in a merge.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from corpora.errors import ArtifactError, ArtifactMismatch, IdxError, InputError, MissingExtraError, StorageError
from corpora.home import home
from corpora.store import PassageStore
from indexer import INDEXES
from indexer.base import equal_ranges
from indexer.catalog import index_path
from indexer.cluster.nodes import Node, check_readable, load_ray
from indexer.naming import joined_names
from indexer.row_range import IndexIdentity, check_identity, index_identity
from retrievers.base import Retriever
from retrievers.bm25 import BM25Retriever
from retrievers.dense import DenseRetriever
from retrievers.opening import open_query_encoder
from retrievers.server.metrics import Metrics
from retrievers.server.settings import Settings

from .health import look
from .placing import check_device, device_of, placed, working_nodes
from .replicas import Health, Replica, ReplicatedShard, shared, start_actor
from .shard import Holding, name_of
from .sharded import Around, Described, ShardedLexicalIndex, ShardedVectorIndex

_LOG = logging.getLogger("idx.server")

WATCH_S = 1.0
_OPEN_S = 3_600.0  # until a shard must be open
_GRACE_S = 1.0  # after the last search of an old generation must have been answered

Index = tuple[str, str]  # corpus, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Into how many shards indexes are cut (None: one for each node that has processors), and how many processes hold each."""

    shards: int | None = None
    replicas: int = 1

    def __post_init__(self) -> None:
        for name, number in (("shards", self.shards), ("replicas", self.replicas)):
            if number is not None and number < 1:
                raise InputError(f"--{name} {number}: at least 1 is needed")

    def n_shards(self) -> int:
        """Return how many shards there are, on the cluster that this process is connected to."""
        return len(working_nodes()) if self.shards is None else self.shards


class Generation(NamedTuple):
    """All processes over the indexes as they were built at one time."""

    shards: list[ReplicatedShard]
    identities: Mapping[Index, IndexIdentity]
    described: Mapping[str, Described]


class ShardService:
    """Starts the shards of what a server serves, and opens first stages that search them; a ``server.catalog.Cluster``.

    Args:
        settings: of the server.
        layout: of the shards.
        metrics: where they are counted.

    Attributes:
        n_shards: how many there are.
    """

    def __init__(self, settings: Settings, layout: Layout, metrics: Metrics) -> None:
        check_device(settings.device)
        self._settings, self._layout, self._metrics = settings, layout, metrics
        self.n_shards = layout.n_shards()
        self._lock = threading.Lock()  # protects the metrics
        self._served: Generation | None = None
        self._begun: Generation | None = None
        self._device: str | None = None  # decided at first: later ones are no slower
        self._before: list[tuple[threading.Timer, Generation]] = []  # which go on until all that they were asked is answered
        self._beginning = threading.Lock()
        self._is_ending = threading.Event()
        self._watching: threading.Thread | None = None

    def begin(self) -> None:
        """Start processes over what is built now, and wait until all are open.

        Raises:
            StorageError: a node does not see the files.
            InputError: an index cannot be searched in parts, or has fewer rows than there are to be shards; there are not enough GPUs.
            ArtifactError, MissingExtraError, IdxError: a shard cannot be opened; the message names its node.
        """
        with self._beginning:
            self._begin()

    def _begin(self) -> None:
        if self._is_ending.is_set():
            raise IdxError("the server is being ended: no shard is started any more")
        indexes = list(dict.fromkeys((corpus, name) for corpus, retriever in self._settings.offers for name in joined_names(retriever)))
        identities = {index: index_identity(*index) for index in indexes}
        for (corpus, name), identity in identities.items():
            if identity.n_rows < self.n_shards:
                raise InputError(f"'{name}' of '{corpus}' has {identity.n_rows:,} rows: it cannot be cut into {self.n_shards} shards")
            check_readable(index_path(corpus, name) / "manifest.json")
        shards = self._started(identities)
        try:
            described = [_opened(shard.number, replica, self._is_ending.is_set) for shard in shards for replica in shard.replicas]
        except BaseException:
            _end(shards)
            raise
        self._begun = Generation(shards, identities, described[0])
        for shard in shards:
            for replica in shard.replicas:
                replica.health = Health.READY

    def commit(self) -> None:
        """Serve what was begun; the processes before end when no search can be waiting for them any more.

        Raises:
            IdxError: nothing was begun, or all has ended since.
        """
        with self._beginning:
            if self._begun is None:
                raise IdxError("no shard has been started that could be served")
            before, self._served, self._begun = self._served, self._begun, None
            if before is not None:
                self._end_later(before)
            if self._watching is None:
                self._watching = threading.Thread(target=self._watch, name="watching shards", daemon=True)
                self._watching.start()

    def _end_later(self, generation: Generation) -> None:
        timer = threading.Timer(self._settings.limits.deadline_s + _GRACE_S, _end, [generation.shards])
        timer.daemon = True
        self._before = [(other, before) for other, before in self._before if other.is_alive()] + [(timer, generation)]
        timer.start()

    def abandon(self) -> None:
        """End what was begun."""
        begun, self._begun = self._begun, None
        if begun is not None:
            _end(begun.shards)

    def stop(self) -> None:
        """End all; nothing may be searched any more, nor be begun. May be called again."""
        self._is_ending.set()
        if self._watching is not None:
            self._watching.join()
        with self._beginning:  # which is given up now
            self.abandon()
            before, self._before, served, self._served = self._before, [], self._served, None
        for timer, generation in before:
            timer.cancel()
            timer.join()
            _end(generation.shards)
        if served is not None:
            _end(served.shards)

    def __call__(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        """Open a first stage over the latest generation; queries are encoded in this process.

        Raises:
            ArtifactMismatch: the store, or the index, has been exchanged since the generation was begun.
            IdxError: as ``opening.open_retriever`` does.
        """
        generation = self._begun or self._served
        if generation is None:
            raise IdxError("no shard has been started")
        identity = generation.identities[corpus, name]
        if store.fingerprint != identity.fingerprint:
            raise ArtifactMismatch(
                f"the passages of '{corpus}' are {store.fingerprint:.12}, the shards of '{name}' are of {identity.fingerprint:.12}: "
                "they were exchanged while shards were started: start again once nothing is being built"
            )
        check_identity(corpus, name, identity)
        key, around = name_of(corpus, name), Around(self.observe, shared)
        if name in INDEXES:
            return BM25Retriever(ShardedLexicalIndex(key, generation.shards, around))
        encoder = open_query_encoder(corpus, name, device=device)
        index = ShardedVectorIndex(key, generation.shards, generation.described[key], around)
        return DenseRetriever(encoder, index, index)

    def describe(self) -> list[dict[str, Any]]:
        """Return how each shard is, with each replica's node, process, searches, and bytes of memory."""
        generation = self._served
        return [] if generation is None else [_description(shard) for shard in generation.shards]

    def _started(self, identities: Mapping[Index, IndexIdentity]) -> list[ReplicatedShard]:
        """Start all processes, those of one shard on different nodes if there are enough."""
        layout, there = self._layout, working_nodes()
        if layout.replicas > len(there):
            _LOG.warning("%d replicas on %d nodes: a node that is lost takes several of a shard with it", layout.replicas, len(there))
        n_processes = self.n_shards * layout.replicas
        if self._device is None:
            has_vectors = any(name not in INDEXES for _, name in identities)
            self._device = device_of(self._settings.device, there, n_processes, has_vectors=has_vectors)
            _LOG.info("%d processes search on %s each", n_processes, "a GPU" if self._device == "cuda" else "processors")
        on_gpus = self._device == "cuda"
        places = placed(self.n_shards, layout.replicas, there, self._busy(), on_gpus=on_gpus)
        n_per_node, shards = -(-n_processes // len(there)), []
        for number, chosen in enumerate(places):
            holdings = [
                Holding(corpus, name, identity, equal_ranges(identity.n_rows, self.n_shards)[number], self._device)
                for (corpus, name), identity in identities.items()
            ]
            replicas = [
                Replica(copy, node, start_actor(holdings, node, home=str(home()), n_per_node=n_per_node, n_gpus=float(on_gpus)))
                for copy, node in enumerate(chosen)
            ]
            shards.append(ReplicatedShard(number, holdings, replicas, self._settings.limits.deadline_s))
        return shards

    def _busy(self) -> list[Node]:
        """Return the node of each process that there is."""
        there = [generation for timer, generation in self._before if timer.is_alive()] + [self._served]
        return [replica.node for generation in there if generation is not None for shard in generation.shards for replica in shard.replicas]

    def observe(self, slowest_s: float, beyond_s: float) -> None:
        """Count a search; see ``sharded.Observe``."""
        with self._lock:
            self._metrics.shard_overhead_seconds.observe("searches", value=max(0.0, beyond_s))

    def _watch(self) -> None:
        """See again and again which replicas answer, and count; runs in a thread of its own."""
        ray = load_ray()
        while not self._is_ending.wait(WATCH_S):
            served = self._served
            if served is None:
                continue
            try:
                look(served.shards)
            except ray.exceptions.RayError as error:  # of the cluster itself, which may be back in a while
                _LOG.error("the cluster does not say how the shards are: %s", error)
            for shard in served.shards:
                self._count(shard)

    def _count(self, shard: ReplicatedShard) -> None:
        counts, number = shard.take_counts(), str(shard.number)
        resident = [replica.state.resident_bytes for replica in shard.replicas if replica.state is not None]
        with self._lock:
            for seconds in counts.seconds:
                self._metrics.shard_seconds.observe(number, value=seconds)
            self._metrics.shard_failures.add(number, value=counts.n_failed)
            self._metrics.shard_unavailable.add(number, value=counts.n_unavailable)
            self._metrics.shard_replicas.set(number, value=sum(replica.health is Health.READY for replica in shard.replicas))
            self._metrics.shard_bytes.set(number, value=max(resident, default=0))


def _opened(number: int, replica: Replica, is_ending: Callable[[], bool] = lambda: False) -> Mapping[str, Described]:
    """Wait until a replica is open; raises what opening it raised, with the node's name."""
    ray = load_ray()
    where = f"shard {number} on node {replica.node.address}"
    try:
        answer = replica.handle.described.remote()
        _wait(answer, where, is_ending)
        found: Mapping[str, Described] = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ArtifactError | InputError | StorageError):
            raise type(cause)(f"{where}: {cause}") from error
        raise cause if isinstance(cause, MissingExtraError) else IdxError(f"{where}: {type(cause).__name__}: {cause}") from error
    except ray.exceptions.OutOfMemoryError as error:
        raise IdxError(f"{where}: the node is out of memory: use more shards, or larger nodes") from error
    except ray.exceptions.RayError as error:
        raise IdxError(
            f"{where} ended while it was opened ({type(error).__name__}): is there enough memory? More shards need less"
        ) from error
    return found


def _wait(answer: Any, where: str, is_ending: Callable[[], bool]) -> None:  # noqa: ANN401 - Ray's reference
    """Wait for an answer.

    Raises:
        IdxError: there is none for very long, or the server ends.
    """
    ends = time.monotonic() + _OPEN_S
    while not load_ray().wait([answer], timeout=WATCH_S)[0]:
        if is_ending():
            raise IdxError(f"{where} was being opened when the server was ended")
        if time.monotonic() > ends:
            raise IdxError(f"{where} was not open after {_OPEN_S:g} s: 'ray status' says whether the cluster has what it needs")


def _end(shards: Sequence[ReplicatedShard]) -> None:
    for shard in shards:
        for replica in shard.replicas:
            load_ray().kill(replica.handle)


def _description(shard: ReplicatedShard) -> dict[str, Any]:
    return {
        "shard": shard.number,
        "ready": any(replica.health is Health.READY for replica in shard.replicas),
        "rows": {name: [rows.start, rows.stop] for name, rows in shard.ranges.items()},
        "replicas": [_replica(replica) for replica in shard.replicas],
    }


def _replica(replica: Replica) -> dict[str, Any]:
    state = replica.state
    about = (
        {} if state is None else {"process": state.pid, "searches": state.searches, "queries": state.queries, "bytes": state.resident_bytes}
    )
    return {"replica": replica.number, "node": replica.node.address, "state": replica.health.value, **about}

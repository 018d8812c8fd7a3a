"""``idx serve --ray``: this process encodes, merges, fuses and fetches; the processes of all shards run on a cluster.

It watches them, and replaces all of them at once when there is a new index.

A generation is all processes over the indexes as they were built at one time. A search is of one generation: rows of an old and a new index
are never merged. Lexical indexes are not sharded: the process that answers holds all of them, as on one machine.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wikidx.corpora.artifacts.home import home
from wikidx.corpora.errors import ArtifactError, ArtifactMismatch, ArtifactMissing, IdxError, InputError, MissingExtraError, StorageError
from wikidx.corpora.store import PassageStore
from wikidx.indexer import INDEXES
from wikidx.indexer.catalog import IndexIdentity, check_identity, index_identity
from wikidx.indexer.embedding.cluster.nodes import check_versions, connected, load_ray
from wikidx.indexer.machine.threads import equal_ranges
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenRetriever, open_query_encoder, open_retriever
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

from .placing import check_device, needs_gpus, placed, working_nodes
from .replicas import Replica, ReplicatedShard, watch
from .shard import Description, Holding, key_of, start_actor
from .sharded import Observe, ShardedIndex

_LOG = logging.getLogger("idx.server")

WATCH_S = 1.0
_OPEN_S = 3_600.0  # limit for opening a shard
_GRACE_S = 1.0  # added to the deadline of an old generation's last search

Index = tuple[str, str]  # corpus, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Number of shards of each index (None: one for each node with CPUs), and number of replicas of each shard."""

    shards: int | None = None
    replicas: int = 1

    def __post_init__(self) -> None:
        for name, number in (("shards", self.shards), ("replicas", self.replicas)):
            if number is not None and number < 1:
                raise InputError(f"--{name} {number}: at least 1 is needed")

    def n_shards(self) -> int:
        """Return the number of shards on the connected cluster."""
        return len(working_nodes()) if self.shards is None else self.shards


class Generation:
    """All processes over the indexes as they were built at one time.

    Args:
        identities: of these indexes.
        observe: called after each search; see ``sharded.Observe``.

    Attributes:
        shards: the processes.
        descriptions: of the indexes, once the shards are open.
        ends_at: end time, on the clock of ``time.monotonic``.
    """

    def __init__(self, identities: Mapping[Index, IndexIdentity], observe: Observe) -> None:
        self.identities, self._observe = identities, observe
        self.shards: list[ReplicatedShard] = []
        self.descriptions: Mapping[str, Description] = {}
        self.ends_at = math.inf

    def open(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        """Open a retriever over the shards, or a lexical one in this process. Queries are encoded here.

        Raises:
            ArtifactMismatch: the store, or the index, has been replaced since the shards were started.
            IdxError: as ``opening.open_retriever`` does.
        """
        if name in INDEXES:
            return open_retriever(corpus, name, store, device=device)
        identity = self.identities[corpus, name]
        if store.fingerprint != identity.fingerprint:
            raise ArtifactMismatch(
                f"the passages of '{corpus}' are {store.fingerprint:.12}, the shards of '{name}' are of {identity.fingerprint:.12}: "
                "they were exchanged while shards were started: start again once nothing is being built"
            )
        check_identity(corpus, name, identity)
        key = key_of(corpus, name)
        index = ShardedIndex(key, self.shards, self.descriptions[key], self._observe)
        return DenseRetriever(open_query_encoder(corpus, name, device=device), index, index)

    def end(self) -> None:
        """End the processes."""
        for shard in self.shards:
            for replica in shard.replicas:
                load_ray().kill(replica.handle)


class ShardService:
    """Starts the shards of a server, and replaces them when indexes are rebuilt; a ``server.catalog.Cluster``.

    Args:
        settings: of the server.
        layout: of the shards.
        metrics: counts of the shards.

    Attributes:
        n_shards: number of shards.
    """

    def __init__(self, settings: Settings, layout: Layout, metrics: Metrics) -> None:
        check_device(settings.device)
        self._settings, self._layout, self._metrics = settings, layout, metrics
        self.n_shards = layout.n_shards()
        self._on_gpus: bool | None = None  # decided once, so that later generations are no slower
        self._served: Generation | None = None
        self._before: list[Generation] = []  # old generations, which run until all their searches are answered
        self._changing = threading.Lock()
        self._is_ending = threading.Event()
        self._watching: threading.Thread | None = None

    @contextmanager
    def exchange(self) -> Iterator[OpenRetriever]:
        """Start processes over the current indexes, and yield the opener of retrievers over them once all are open.

        They serve when the block ends, and the old processes end once no search can be waiting for them. On an exception the new ones
        end and the old ones continue. Exchanges run one at a time.

        Raises:
            InputError: an index cannot be sharded, or has fewer rows than shards; there are too few GPUs.
            ArtifactError, MissingExtraError, IdxError: a shard cannot be opened; the message names its node.
        """
        with self._changing:
            if self._is_ending.is_set():
                raise IdxError("the server is being ended: no shard is started any more")
            begun = Generation(self._identities(), self.observe)
            try:
                if begun.identities:
                    begun.shards = self._start(begun.identities)
                for shard in begun.shards:
                    for replica in shard.replicas:
                        begun.descriptions = describe(shard.number, replica, self._is_ending.is_set)
                        replica.is_ready = True
                yield begun.open
            except BaseException:
                begun.end()
                raise
            if self._served is not None:
                self._served.ends_at = time.monotonic() + self._settings.limits.deadline_s + _GRACE_S
                self._before.append(self._served)
            self._served = begun
            if self._watching is None:
                self._watching = threading.Thread(target=self._watch, name="watching shards", daemon=True)
                self._watching.start()

    def stop(self) -> None:
        """End all processes; no search or start is possible afterwards. May be called again."""
        self._is_ending.set()
        with self._changing:  # a start in progress is given up now
            if self._watching is not None:
                self._watching.join()
            for generation in self._generations():
                generation.end()
            self._served, self._before = None, []

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard, with each replica's node, process, and bytes of memory."""
        generation = self._served
        return [
            {
                "shard": shard.number,
                "ready": any(replica.is_ready for replica in shard.replicas),
                "rows": {key: [rows.start, rows.stop] for key, rows in shard.ranges.items()},
                "replicas": [_replica_to_json(replica) for replica in shard.replicas],
            }
            for shard in (generation.shards if generation else ())
        ]

    def observe(self, slowest_s: float, beyond_s: float) -> None:
        """Count a search; see ``sharded.Observe``."""
        self._metrics.shard_overhead_seconds.observe(max(0.0, beyond_s))

    def _generations(self) -> list[Generation]:
        return [*self._before, *([self._served] if self._served is not None else [])]

    def _identities(self) -> dict[Index, IndexIdentity]:
        """Return the identities of the vector indexes to serve, as they are built now."""
        names = [(corpus, name) for corpus, retriever in self._settings.offers for name in RetrieverName.parse(retriever).parts]
        identities = {index: index_identity(*index) for index in dict.fromkeys(names) if index[1] not in INDEXES}
        for (corpus, name), identity in identities.items():
            if identity.n_rows < self.n_shards:
                raise InputError(f"'{name}' of '{corpus}' has {identity.n_rows:,} rows: it cannot be cut into {self.n_shards} shards")
        if not identities:
            _LOG.warning("nothing that is served is searched by vectors: this process searches it, and no shard is started")
        return identities

    def _start(self, identities: Mapping[Index, IndexIdentity]) -> list[ReplicatedShard]:
        """Start all processes, those of one shard on different nodes if there are enough."""
        n_replicas, there, timeout_s = self._layout.replicas, working_nodes(), self._settings.limits.deadline_s
        if n_replicas > len(there):
            _LOG.warning("%d replicas on %d nodes: a node that is lost takes several of a shard with it", n_replicas, len(there))
        n_processes = self.n_shards * n_replicas
        if self._on_gpus is None:
            self._on_gpus = needs_gpus(self._settings.device, there, n_processes)
            _LOG.info("%d processes search on %s each", n_processes, "a GPU" if self._on_gpus else "processors")
        device = self._settings.device if self._on_gpus else "cpu"
        busy = [replica.node for generation in self._generations() for shard in generation.shards for replica in shard.replicas]
        places = placed(self.n_shards, n_replicas, there, busy, on_gpus=self._on_gpus)
        n_per_node, n_gpus, shards = -(-n_processes // len(there)), float(self._on_gpus), []
        for number, chosen in enumerate(places):
            holdings = [
                Holding(corpus, name, identity, equal_ranges(identity.n_rows, self.n_shards)[number], device)
                for (corpus, name), identity in identities.items()
            ]
            replicas = [
                Replica(copy, node, start_actor(holdings, node, home=str(home()), n_per_node=n_per_node, n_gpus=n_gpus))
                for copy, node in enumerate(chosen)
            ]
            shards.append(ReplicatedShard(number, holdings, replicas, timeout_s, self._metrics))
        return shards

    def _watch(self) -> None:
        """Check the replicas periodically, and end unused generations; runs in a thread of its own."""
        ray = load_ray()
        while not self._is_ending.wait(WATCH_S):
            for generation in list(self._before):
                if generation.ends_at <= time.monotonic():
                    generation.end()
                    self._before.remove(generation)
            served = self._served
            if served is None:
                continue
            try:
                watch(served.shards)
            except ray.exceptions.RayError as error:  # an error of the cluster itself, which may recover
                _LOG.error("the cluster does not say how the shards are: %s", error)
            for shard in served.shards:
                resident = [replica.state.resident_bytes for replica in shard.replicas if replica.state is not None]
                self._metrics.shard_replicas.labels(shard.number).set(sum(replica.is_ready for replica in shard.replicas))
                self._metrics.shard_bytes.labels(shard.number).set(max(resident, default=0))


def describe(number: int, replica: Replica, is_ending: Callable[[], bool] = lambda: False) -> Mapping[str, Description]:
    """Wait until a replica of a shard is open, and return its description.

    Raises:
        IdxError: it did not open in time, or the server is ending; or the error of opening it, with the node's name.
    """
    ray, ends = load_ray(), time.monotonic() + _OPEN_S
    where = f"shard {number} on node {replica.node.address}"
    answer = replica.handle.describe.remote()
    try:
        while not ray.wait([answer], timeout=WATCH_S)[0]:
            if is_ending():
                raise IdxError(f"{where} was being opened when the server was ended")
            if time.monotonic() > ends:
                raise IdxError(f"{where} was not open after {_OPEN_S:g} s: 'ray status' says whether the cluster has what it needs")
        found: Mapping[str, Description] = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ArtifactError | InputError | StorageError):
            advice = ": let all nodes see the same data home (IDX_HOME)" if isinstance(cause, ArtifactMissing) else ""
            raise type(cause)(f"{where}: {cause}{advice}") from error
        raise cause if isinstance(cause, MissingExtraError) else IdxError(f"{where}: {type(cause).__name__}: {cause}") from error
    except ray.exceptions.OutOfMemoryError as error:
        raise IdxError(f"{where}: the node is out of memory: use more shards, or larger nodes") from error
    except ray.exceptions.RayError as error:
        raise IdxError(
            f"{where} ended while it was opened ({type(error).__name__}): is there enough memory? More shards need less"
        ) from error
    return found


def _replica_to_json(replica: Replica) -> dict[str, Any]:
    process = {} if replica.state is None else {"process": replica.state.pid, "bytes": replica.state.resident_bytes}
    return {"replica": replica.number, "node": replica.node.address, "state": "ready" if replica.is_ready else "lost", **process}


def serve(settings: Settings, listening: socket.socket, address: str | None, layout: Layout) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; SIGHUP reloads the current indexes.

    Args:
        settings: of the server.
        listening: the socket.
        address: of the cluster; see ``indexer.embedding.cluster.nodes.connected``.
        layout: of the shards.

    Raises:
        InputError: the cluster cannot be reached, or the settings ask for several processes.
        IdxError: nodes have other versions, or something cannot be opened.
        MissingExtraError: Ray is not installed.
    """
    if settings.workers > 1:
        raise InputError(f"--workers {settings.workers}: with --ray one process answers, and the shards search")
    with connected(address):
        check_versions()
        from wikidx.retrievers.server.running import Service  # FastAPI

        metrics = Metrics()
        shards = ShardService(settings, layout, metrics)
        try:
            Service(settings, listening, metrics, shards).run()
        finally:
            shards.stop()

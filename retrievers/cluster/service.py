"""``idx serve --ray``: a server whose vector indexes are searched by shards, which are processes on a Ray cluster.

The server's own process encodes queries, fuses and merges results, and fetches passages. It also holds the lexical indexes, which are not
sharded. It checks the health of the shards' processes, and replaces all of them together on a reload.

A generation consists of all shard processes over one build of the indexes. A search uses one generation, so that rows of an old and a new
index are never merged.
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

from wikidx.base.artifacts.home import home
from wikidx.base.errors import ArtifactError, ArtifactMismatch, ArtifactMissing, IdxError, InputError, MissingExtraError, StorageError
from wikidx.base.machine.threads import equal_ranges
from wikidx.corpora.store import PassageStore
from wikidx.indexer.embedding.cluster.nodes import check_versions, connect, load_ray
from wikidx.indexer.encoders.spec import Dtype
from wikidx.indexer.naming import parse_index_name
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenRetriever, open_query_encoder, open_retriever
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

from .identity import IndexIdentity, check_identity, index_identity
from .placement import check_device, needs_gpus, place_replicas, usable_nodes
from .replicas import Replica, ReplicatedShard, check_replicas
from .shard import Description, ShardRange, index_key, start_actor
from .sharded import Observe, ShardedIndex

_LOG = logging.getLogger("idx.server")

WATCH_S = 1.0
_OPEN_S = 3_600.0  # time limit for opening a shard
_GRACE_S = 1.0  # an old generation ends this long after the latest deadline of its searches

Index = tuple[str, str]  # corpus, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Numbers of shards and replicas.

    Attributes:
        shards: number of shards; None: one for each node with a CPU or GPU.
        replicas: number of replicas of each shard.
    """

    shards: int | None = None
    replicas: int = 1

    def __post_init__(self) -> None:
        for name, number in (("shards", self.shards), ("replicas", self.replicas)):
            if number is not None and number < 1:
                raise InputError(f"--{name} {number}: at least 1 is needed")

    def n_shards(self) -> int:
        """Return the number of shards on the connected cluster."""
        return len(usable_nodes()) if self.shards is None else self.shards


class Generation:
    """All shard processes over one build of the indexes.

    Args:
        identities: identities of the indexes.
        observe: called after each search; see ``sharded.Observe``.
        query_dtype: precision in which queries are encoded.

    Attributes:
        shards: the shards with their processes.
        descriptions: descriptions of the indexes, by key; empty until the shards are open.
        stop_at: time to end the processes, on the clock of ``time.monotonic``; infinity while they serve.
    """

    def __init__(self, identities: Mapping[Index, IndexIdentity], observe: Observe, query_dtype: Dtype | None) -> None:
        self.identities, self._observe, self._query_dtype = identities, observe, query_dtype
        self.shards: list[ReplicatedShard] = []
        self.descriptions: Mapping[str, Description] = {}
        self.stop_at = math.inf

    def open(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        """Open a dense retriever over the shards, or a lexical retriever in this process.

        Raises:
            ArtifactMismatch: the store or the index has been replaced since the shards were started.
            IdxError: see ``opening.open_retriever``.
        """
        if not parse_index_name(name).encoder:
            return open_retriever(corpus, name, store, device=device)
        identity = self.identities[corpus, name]
        if store.fingerprint != identity.fingerprint:
            raise ArtifactMismatch(
                f"the passages of '{corpus}' are {store.fingerprint:.12}, the shards of '{name}' are of {identity.fingerprint:.12}: "
                "they were exchanged while shards were started: start again once nothing is being built"
            )
        check_identity(corpus, name, identity)
        key = index_key(corpus, name)
        index = ShardedIndex(key, self.shards, self.descriptions[key], self._observe)
        return DenseRetriever(open_query_encoder(corpus, name, device=device, dtype=self._query_dtype), index, index)

    def stop(self) -> None:
        """End the processes."""
        for shard in self.shards:
            for replica in shard.replicas:
                load_ray().kill(replica.handle)


class ShardService:
    """The shards of a server, which are started, watched and replaced; a ``server.catalog.Cluster``.

    Args:
        settings: settings of the server.
        layout: numbers of shards and replicas.
        metrics: the server's metrics.

    Attributes:
        n_shards: number of shards.
    """

    def __init__(self, settings: Settings, layout: Layout, metrics: Metrics) -> None:
        check_device(settings.device)
        self._settings, self._layout, self._metrics = settings, layout, metrics
        self.n_shards = layout.n_shards()
        self._on_gpus: bool | None = None  # decided once, so that later generations are no slower
        self._served: Generation | None = None
        self._old_generations: list[Generation] = []  # each runs until the deadlines of its searches have passed
        self._exchange_lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    @contextmanager
    def exchange(self) -> Iterator[OpenRetriever]:
        """Start processes over the current indexes, wait until all are open, and yield a function that opens retrievers.

        The new processes serve when the ``with`` block ends. The old processes end once the deadlines of their searches have passed. After
        an exception the new processes end, and the old ones continue. Exchanges run one at a time.

        Raises:
            InputError: an index cannot be sharded or has fewer rows than shards, or there are too few GPUs.
            ArtifactError, MissingExtraError, IdxError: a shard cannot be opened.
        """
        with self._exchange_lock:
            if self._is_stopping.is_set():
                raise IdxError("the server is being ended: no shard is started any more")
            new = Generation(self._read_identities(), self.observe, self._settings.query_dtype)
            try:
                if new.identities:
                    new.shards = self._start(new.identities)
                for shard in new.shards:
                    for replica in shard.replicas:
                        new.descriptions = describe(shard.number, replica, self._is_stopping.is_set)
                        replica.is_ready = True
                yield new.open
            except BaseException:
                new.stop()
                raise
            if self._served is not None:
                self._served.stop_at = time.monotonic() + self._settings.limits.deadline_s + _GRACE_S
                self._old_generations.append(self._served)
            self._served = new
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="watching shards", daemon=True)
                self._watcher.start()

    def stop(self) -> None:
        """End all processes; no search or start is possible afterwards. Further calls do nothing."""
        self._is_stopping.set()
        with self._exchange_lock:  # waits for an exchange in progress, which ``_is_stopping`` shortens
            if self._watcher is not None:
                self._watcher.join()
            for generation in self._generations():
                generation.stop()
            self._served, self._old_generations = None, []

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard, with the node, process id and resident bytes of its replicas."""
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

    def observe(self, slowest_s: float, overhead_s: float) -> None:
        """Record the overhead of a search; see ``sharded.Observe``."""
        self._metrics.shard_overhead_seconds.observe(max(0.0, overhead_s))

    def _generations(self) -> list[Generation]:
        return [*self._old_generations, *([self._served] if self._served is not None else [])]

    def _read_identities(self) -> dict[Index, IndexIdentity]:
        """Return the current identities of the vector indexes to serve."""
        names = [
            (corpus, name) for corpus, retriever in self._settings.served_pairs for name in RetrieverName.parse(retriever, corpus).parts
        ]
        identities = {index: index_identity(*index) for index in dict.fromkeys(names) if parse_index_name(index[1]).encoder}
        for (corpus, name), identity in identities.items():
            if identity.n_rows < self.n_shards:
                raise InputError(f"'{name}' of '{corpus}' has {identity.n_rows:,} rows: it cannot be cut into {self.n_shards} shards")
        if not identities:
            _LOG.warning("nothing that is served is searched by vectors: this process searches it, and no shard is started")
        return identities

    def _start(self, identities: Mapping[Index, IndexIdentity]) -> list[ReplicatedShard]:
        """Start all processes of a new generation."""
        n_replicas, nodes, timeout_s = self._layout.replicas, usable_nodes(), self._settings.limits.deadline_s
        if n_replicas > len(nodes):
            _LOG.warning("%d replicas on %d nodes: a node that is lost takes several of a shard with it", n_replicas, len(nodes))
        n_processes = self.n_shards * n_replicas
        if self._on_gpus is None:
            self._on_gpus = needs_gpus(self._settings.device, nodes, n_processes)
            _LOG.info("%d processes search on %s each", n_processes, "a GPU" if self._on_gpus else "processors")
        device = self._settings.device if self._on_gpus else "cpu"
        busy_nodes = [replica.node for generation in self._generations() for shard in generation.shards for replica in shard.replicas]
        placement = place_replicas(self.n_shards, n_replicas, nodes, busy_nodes, on_gpus=self._on_gpus)
        n_per_node, n_gpus, shards = -(-n_processes // len(nodes)), float(self._on_gpus), []
        for number, chosen in enumerate(placement):
            shard_ranges = [
                ShardRange(corpus, name, identity, equal_ranges(identity.n_rows, self.n_shards)[number], device)
                for (corpus, name), identity in identities.items()
            ]
            replicas = [
                Replica(index, node, start_actor(shard_ranges, node, home=str(home()), n_per_node=n_per_node, n_gpus=n_gpus))
                for index, node in enumerate(chosen)
            ]
            shards.append(ReplicatedShard(number, shard_ranges, replicas, timeout_s, self._metrics))
        return shards

    def _watch(self) -> None:
        """Check the replicas and end old generations periodically; runs in a separate thread."""
        ray = load_ray()
        while not self._is_stopping.wait(WATCH_S):
            for generation in list(self._old_generations):
                if generation.stop_at <= time.monotonic():
                    generation.stop()
                    self._old_generations.remove(generation)
            served = self._served
            if served is None:
                continue
            try:
                check_replicas(served.shards)
            except ray.exceptions.RayError as error:  # an error of the cluster itself, which may recover
                _LOG.error("the cluster does not report the state of the shards: %s", error)
            for shard in served.shards:
                resident = [replica.state.resident_bytes for replica in shard.replicas if replica.state is not None]
                self._metrics.shard_replicas.labels(shard.number).set(sum(replica.is_ready for replica in shard.replicas))
                self._metrics.shard_bytes.labels(shard.number).set(max(resident, default=0))


def describe(number: int, replica: Replica, is_stopping: Callable[[], bool] = lambda: False) -> Mapping[str, Description]:
    """Wait until a replica of a shard is open, and return the descriptions of its indexes by key.

    Raises:
        IdxError: the replica cannot be opened, is not open in time, or the server is ending.
    """
    ray, deadline = load_ray(), time.monotonic() + _OPEN_S
    shard_name = f"shard {number} on node {replica.node.address}"
    answer = replica.handle.describe.remote()
    try:
        while not ray.wait([answer], timeout=WATCH_S)[0]:
            if is_stopping():
                raise IdxError(f"{shard_name} was being opened when the server was ended")
            if time.monotonic() > deadline:
                raise IdxError(
                    f"{shard_name} was not open after {_OPEN_S:g} s: 'ray status' shows whether the cluster has enough resources"
                )
        descriptions: Mapping[str, Description] = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ArtifactError | InputError | StorageError):
            advice = ": let all nodes see the same data home (IDX_HOME)" if isinstance(cause, ArtifactMissing) else ""
            raise type(cause)(f"{shard_name}: {cause}{advice}") from error
        raise cause if isinstance(cause, MissingExtraError) else IdxError(f"{shard_name}: {type(cause).__name__}: {cause}") from error
    except ray.exceptions.OutOfMemoryError as error:
        raise IdxError(f"{shard_name}: the node is out of memory: use more shards, or larger nodes") from error
    except ray.exceptions.RayError as error:
        raise IdxError(
            f"{shard_name} ended while it was opened ({type(error).__name__}): is there enough memory? More shards need less"
        ) from error
    return descriptions


def _replica_to_json(replica: Replica) -> dict[str, Any]:
    process = {} if replica.state is None else {"process": replica.state.pid, "bytes": replica.state.resident_bytes}
    return {"replica": replica.number, "node": replica.node.address, "state": "ready" if replica.is_ready else "lost", **process}


def serve(settings: Settings, listener: socket.socket, address: str | None, layout: Layout) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; SIGHUP reloads the current indexes.

    Args:
        settings: settings of the server.
        listener: the socket.
        address: address of the cluster; see ``indexer.embedding.cluster.nodes.connect``.
        layout: numbers of shards and replicas.

    Raises:
        InputError: the cluster cannot be reached, or the settings request several server processes.
        IdxError: a node has another version of idx or of a package, or a corpus or retriever cannot be opened.
        MissingExtraError: Ray is not installed.
    """
    if settings.workers > 1:
        raise InputError(f"--workers {settings.workers}: with --ray one process answers, and the shards search")
    with connect(address):
        check_versions()
        from wikidx.retrievers.server.running import Service

        metrics = Metrics()
        shards = ShardService(settings, layout, metrics)
        try:
            Service(settings, listener, metrics, shards).run()
        finally:
            shards.stop()

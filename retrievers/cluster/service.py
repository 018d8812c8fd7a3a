"""``idx serve --ray``: a server whose vector indexes are searched by shards, which are processes on a Ray cluster.

The server's own process encodes queries, fuses and merges results, and fetches passages. It also holds the lexical indexes, which are not
sharded. It checks the health of the shards' processes, and replaces all of them together on a reload.

A generation consists of all shard processes over one build of the indexes. A search uses one generation, so that rows of an old and a new
index are never merged.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Any

from wikidx.base.artifacts.home import home
from wikidx.base.cluster import connect, list_nodes, load_ray, pin_to_node, remote_errors
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, IdxError, InputError
from wikidx.base.machine.threads import equal_ranges
from wikidx.corpora.store import PassageStore
from wikidx.indexer.naming import parse_index_name
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenRetriever, open_query_encoder, open_retriever
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

from .replicas import Replica, Shard, check_replicas
from .shard import Description, IndexIdentity, ShardActor, ShardRange, check_identity, index_identity, index_key
from .sharded import ShardedIndex

_LOG = logging.getLogger("idx.server")

SEARCHES_AT_ONCE = 8
WATCH_S = 1.0
_OPEN_S = 3_600.0  # time limit for opening a shard
_GRACE_S = 1.0  # an old generation ends this long after the latest deadline of its searches

Index = tuple[str, str]  # corpus, index


class ShardService:
    """The shards of a server, which are started, watched and replaced; a ``server.catalog.Cluster``.

    Args:
        settings: settings of the server.
        metrics: the server's metrics.
        n_shards: number of shards; None: one for each node with a CPU or GPU.
        n_replicas: number of replicas of each shard.
    """

    def __init__(self, settings: Settings, metrics: Metrics, n_shards: int | None = None, n_replicas: int = 1) -> None:
        if settings.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--device {settings.device} with --ray: use auto, cpu or cuda; Ray assigns the GPUs")
        self._settings, self._metrics, self._n_replicas = settings, metrics, n_replicas
        self.n_shards = n_shards or len(list_nodes(usable=True))
        self._on_gpus: bool | None = None  # decided once, so that later generations are no slower
        self._served: list[Shard] = []
        self._old_generations: list[tuple[float, list[Shard]]] = []  # each runs until this time, when its searches have ended
        self._exchange_lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watching shards", daemon=True)

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
            shards = self._start(self._read_identities())
            try:
                for shard in shards:
                    for replica in shard.replicas:
                        shard.descriptions = open_replica(shard.number, replica, self._is_stopping)
                yield partial(self._open, shards)
            except BaseException:
                stop(shards)
                raise
            self._old_generations.append((time.monotonic() + self._settings.limits.deadline_s + _GRACE_S, self._served))
            self._served = shards
            if not self._watcher.is_alive():
                self._watcher.start()

    def stop(self) -> None:
        """End all processes; no search or start is possible afterwards. Further calls do nothing."""
        self._is_stopping.set()
        with self._exchange_lock:  # waits for an exchange in progress, which ``_is_stopping`` shortens
            if self._watcher.is_alive():
                self._watcher.join()
            stop([*self._served, *(shard for _, shards in self._old_generations for shard in shards)])
            self._served, self._old_generations = [], []

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard, with the node, process id and resident bytes of its replicas."""
        return [
            {
                "shard": shard.number,
                "ready": any(replica.is_ready for replica in shard.replicas),
                "rows": {key: [cut.rows.start, cut.rows.stop] for key, cut in shard.ranges.items()},
                "replicas": [
                    {"replica": n, "node": replica.node, "state": "ready" if replica.is_ready else "lost", **replica.state}
                    for n, replica in enumerate(shard.replicas)
                ],
            }
            for shard in self._served
        ]

    def _read_identities(self) -> Mapping[Index, IndexIdentity]:
        """Return the current identities of the vector indexes to serve."""
        names = [
            (corpus, name) for corpus, retriever in self._settings.served_pairs for name in RetrieverName.parse(retriever, corpus).parts
        ]
        identities = {index: index_identity(*index) for index in dict.fromkeys(names) if parse_index_name(index[1]).encoder}
        for (corpus, name), identity in identities.items():
            if identity.n_rows < self.n_shards:
                raise InputError(f"'{name}' of '{corpus}' has {identity.n_rows:,} rows: it cannot be cut into {self.n_shards} shards")
        return identities

    def _open(self, shards: Sequence[Shard], corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        """Open a dense retriever over the shards, or a lexical retriever in this process."""
        if not parse_index_name(name).encoder:
            return open_retriever(corpus, name, store, device=device)
        key = index_key(corpus, name)
        identity = shards[0].ranges[key].identity
        if store.fingerprint != identity.fingerprint:
            raise ArtifactMismatch(
                f"the passages of '{corpus}' are {store.fingerprint:.12}, the shards of '{name}' are of {identity.fingerprint:.12}: "
                "they were exchanged while shards were started: start again once nothing is being built"
            )
        check_identity(corpus, name, identity)
        index = ShardedIndex(key, shards, shards[0].descriptions[key], self._metrics)
        return DenseRetriever(open_query_encoder(corpus, name, device=device, dtype=self._settings.query_dtype), index, index)

    def _start(self, identities: Mapping[Index, IndexIdentity]) -> list[Shard]:
        """Start all processes of a new generation: on nodes with a free GPU each, or on all nodes in turn."""
        if not identities:
            _LOG.warning("nothing that is served is searched by vectors: this process searches it, and no shard is started")
            return []
        ray, nodes, n_processes = load_ray(), list_nodes(usable=True), self.n_shards * self._n_replicas
        if self._n_replicas > len(nodes):
            _LOG.warning("%d replicas on %d nodes: a node that is lost takes several of a shard with it", self._n_replicas, len(nodes))
        n_gpus, device = self._gpus_of_each(n_processes), self._settings.device if self._on_gpus else "cpu"
        remote = ray.remote(
            num_cpus=0,  # not reserved: actors share the node's CPUs, as processes on one machine do
            num_gpus=n_gpus,
            memory=1,  # Ray starts an actor that needs nothing on any node, whatever its strategy
            max_restarts=-1,
            max_concurrency=SEARCHES_AT_ONCE,
            concurrency_groups={"state": 1},  # health checks do not wait for searches
        )(ShardActor)
        strategies = cycle(["SPREAD"] if n_gpus else [pin_to_node(node, soft=True) for node in nodes])
        shards = list[Shard]()
        for number in range(self.n_shards):
            cuts = [
                ShardRange(*index, identity, equal_ranges(identity.n_rows, self.n_shards)[number], device)
                for index, identity in identities.items()
            ]
            arguments = cuts, str(home()), -(-n_processes // len(nodes))
            actors = [remote.options(scheduling_strategy=next(strategies)).remote(*arguments) for _ in range(self._n_replicas)]
            replicas = [Replica(actor) for actor in actors]
            shards.append(Shard(number, {cut.key: cut for cut in cuts}, replicas, self._settings.limits.deadline_s, self._metrics))
        return shards

    def _gpus_of_each(self, n_processes: int) -> int:
        """Return 1 if each process gets a GPU, else 0; raises ``InputError`` if each has to, and too few are free."""
        n_free = int(load_ray().available_resources().get("GPU", 0))
        if self._on_gpus is None:
            self._on_gpus = self._settings.device == "cuda" or (self._settings.device == "auto" and n_free >= n_processes)
            _LOG.info("%d processes search on %s each", n_processes, "a GPU" if self._on_gpus else "processors")
        if self._on_gpus and n_free < n_processes:
            raise InputError(
                f"{n_processes} processes (shards times replicas) need a GPU each, {n_free} of the Ray cluster are free: use fewer "
                "--shards or --replicas, or --device cpu; an index is exchanged with twice the GPUs, or by starting the server again"
            )
        return int(self._on_gpus)

    def _watch(self) -> None:
        """Check the replicas and end old generations periodically; runs in a separate thread."""
        ray = load_ray()
        while not self._is_stopping.wait(WATCH_S):
            for old in [old for old in self._old_generations if old[0] <= time.monotonic()]:
                stop(old[1])
                self._old_generations.remove(old)
            try:
                check_replicas(self._served)
            except ray.exceptions.RayError as error:  # an error of the cluster itself, which may recover
                _LOG.error("the cluster does not report the state of the shards: %s", error)
            for shard in self._served:
                self._metrics.shard_replicas.labels(shard.number).set(sum(replica.is_ready for replica in shard.replicas))
                self._metrics.shard_bytes.labels(shard.number).set(max(replica.state.get("bytes", 0) for replica in shard.replicas))


def stop(shards: Sequence[Shard]) -> None:
    """End the processes of some shards."""
    for shard in shards:
        for replica in shard.replicas:
            load_ray().kill(replica.handle)


def open_replica(number: int, replica: Replica, is_stopping: threading.Event) -> Mapping[str, Description]:
    """Wait until a replica of a shard is open and ready, and return the descriptions of its indexes by key.

    Raises:
        IdxError: the replica cannot be opened, is not open in time, or the server is ending.
    """
    ray, started, answer = load_ray(), time.monotonic(), replica.handle.describe.remote()
    while not ray.wait([answer], timeout=WATCH_S)[0]:
        if is_stopping.is_set() or time.monotonic() - started > _OPEN_S:
            raise IdxError(
                f"shard {number} was not open after {time.monotonic() - started:.0f} s, when the server was ended or its patience: "
                "'ray status' shows whether the cluster has enough resources"
            )
    try:
        with remote_errors(f"shard {number}"):
            replica.move(ray.get(replica.handle.node.remote()))
        with remote_errors(f"shard {number} on node {replica.node}"):
            descriptions: Mapping[str, Description] = ray.get(answer)
    except ArtifactMissing as error:
        raise ArtifactMissing(f"{error}: let all nodes see the same data home (IDX_HOME)") from error
    replica.is_ready = True
    return descriptions


def serve(settings: Settings, listener: socket.socket, address: str | None, n_shards: int | None, n_replicas: int) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; SIGHUP reloads the current indexes.

    Args:
        settings: settings of the server.
        listener: the socket.
        address: address of the cluster; see ``base.cluster.connect``.
        n_shards: see ``ShardService``.
        n_replicas: see ``ShardService``.

    Raises:
        InputError: the cluster cannot be reached, or the settings request several server processes.
        IdxError: a node has another version of idx or of a package, or a corpus or retriever cannot be opened.
        MissingExtraError: Ray is not installed.
    """
    if settings.workers > 1:
        raise InputError(f"--workers {settings.workers}: with --ray one process answers, and the shards search")
    with connect(address):
        from wikidx.retrievers.server.running import Service

        metrics = Metrics()
        shards = ShardService(settings, metrics, n_shards, n_replicas)
        try:
            Service(settings, listener, metrics, shards).run()
        finally:
            shards.stop()

"""``idx serve --ray``: a server whose vector indexes are searched by shards, which are processes on a Ray cluster.

The server's own process encodes queries, fuses and merges results, fetches passages, and holds the lexical indexes, which are not sharded.

A generation consists of all shard processes over one build of the indexes. A search uses one generation, so that rows of an old and a new
index are never merged. Ray starts a lost process again, and reports its end at once, but not that it hangs, and the loss of a machine after
half a minute: health checks find both.
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
from wikidx.base.cluster import connect, fetch, list_nodes, load_ray, pin_to_node
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

from .shard import Index, IndexIdentity, ShardActor, ShardRange, check_identity, index_identity
from .sharded import Replica, Shard, ShardedIndex

_LOG = logging.getLogger("idx.server")

SEARCHES_AT_ONCE = 8
WATCH_S = 1.0
_OPEN_S = 3_600.0  # time limit for opening all shards
_SILENCE_S = 5.0  # a process that does not answer a health check for this long counts as lost
_GRACE_S = 1.0  # an old generation ends this long after the latest deadline of its searches


class ShardService:
    """The shards of a server, which are started, watched and replaced; a ``server.catalog.Cluster``.

    There are ``n_shards``, or one for each node with a CPU or GPU, each with ``n_replicas``.
    """

    def __init__(self, settings: Settings, metrics: Metrics, n_shards: int | None = None, n_replicas: int = 1) -> None:
        if settings.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--device {settings.device} with --ray: use auto, cpu or cuda; Ray assigns the GPUs")
        self._settings, self._metrics, self._n_replicas = settings, metrics, n_replicas
        self.n_shards = n_shards or len(list_nodes(usable=True))
        self._n_processes = self.n_shards * n_replicas
        has_gpus = settings.device == "cuda" or (settings.device == "auto" and count_free_gpus() >= self._n_processes)
        # Decided once, so that later generations are no slower.
        self._device = settings.device if has_gpus else "cpu"
        self._served: list[Shard] = []
        # By the time until which each runs, when its searches have ended.
        self._old_generations: dict[float, list[Shard]] = {}
        self._exchange_lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watching shards", daemon=True)

    @contextmanager
    def exchange(self) -> Iterator[OpenRetriever]:
        """Start processes over the current indexes; see ``server.catalog.Cluster``. Exchanges run one at a time.

        Raises:
            InputError: an index has fewer rows than shards, or there are too few GPUs.
            IdxError: a shard cannot be opened, or the server is being ended.
        """
        with self._exchange_lock:
            if self._is_stopping.is_set():
                raise IdxError("the server is being ended: no shard is started any more")
            shards = self._start(self._read_identities())
            try:
                open_replicas(shards, self._is_stopping)
                yield partial(self._open, shards)
            except BaseException:
                stop(shards)
                raise
            self._old_generations[time.monotonic() + self._settings.limits.deadline_s + _GRACE_S] = self._served
            self._served = shards
            if not self._watcher.is_alive():
                self._watcher.start()

    def stop(self) -> None:
        """End all processes; no search or start is possible afterwards. Further calls do nothing."""
        self._is_stopping.set()
        with self._exchange_lock:  # waits for an exchange in progress, which ``_is_stopping`` shortens
            if self._watcher.is_alive():
                self._watcher.join()
            for shards in (self._served, *self._old_generations.values()):
                stop(shards)
            self._served, self._old_generations = [], {}

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard, with the node, process id and resident bytes of its replicas."""
        return [
            {
                "shard": shard.number,
                "ready": any(replica.is_ready for replica in shard.replicas),
                "rows": {"/".join(index): [cut.rows.start, cut.rows.stop] for index, cut in shard.ranges.items()},
                "replicas": [
                    {"replica": n, "state": "ready" if replica.is_ready else "lost", **replica.state._asdict()}
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
        if parse_index_name(name).source == "passages":
            return open_retriever(corpus, name, store, device=device)
        identity = shards[0].ranges[corpus, name].identity
        if store.fingerprint != identity.fingerprint:
            raise ArtifactMismatch(
                f"the passages of '{corpus}' are {store.fingerprint:.12}, the shards of '{name}' are of {identity.fingerprint:.12}: "
                "they were exchanged while shards were started: start again once nothing is being built"
            )
        check_identity(corpus, name, identity)
        index = ShardedIndex((corpus, name), shards, self._settings.limits.deadline_s, self._metrics)
        return DenseRetriever(open_query_encoder(corpus, name, device=device, dtype=self._settings.query_dtype), index, index)

    def _start(self, identities: Mapping[Index, IndexIdentity]) -> list[Shard]:
        """Start all processes of a new generation: on nodes with a free GPU each, or on all nodes in turn."""
        if not identities:
            _LOG.warning("nothing that is served is searched by vectors: this process searches it, and no shard is started")
            return []
        ray, nodes, n_processes = load_ray(), list_nodes(usable=True), self._n_processes
        on_gpus, n_free = self._device != "cpu", count_free_gpus()
        if self._n_replicas > len(nodes):
            _LOG.warning("%d replicas on %d nodes: a node that is lost takes several of a shard with it", self._n_replicas, len(nodes))
        _LOG.info("%d processes search on %s each", n_processes, "a GPU" if on_gpus else "processors")
        if on_gpus and n_free < n_processes:
            raise InputError(
                f"{n_processes} processes (shards times replicas) need a GPU each, {n_free} of the Ray cluster are free: use fewer "
                "--shards or --replicas, or --device cpu; an index is exchanged with twice the GPUs, or by starting the server again"
            )
        remote = ray.remote(
            num_cpus=0,  # not reserved: actors share the node's CPUs, as processes on one machine do
            num_gpus=int(on_gpus),
            memory=1,  # Ray starts an actor that needs nothing on any node, whatever its strategy
            max_restarts=-1,
            max_concurrency=SEARCHES_AT_ONCE,
            concurrency_groups={"state": 1},  # health checks do not wait for searches
        )(ShardActor)
        strategies = cycle(["SPREAD"] if on_gpus else [pin_to_node(node, soft=True) for node in nodes])
        shards = list[Shard]()
        for number in range(self.n_shards):
            ranges = {
                index: ShardRange(index, identity, equal_ranges(identity.n_rows, self.n_shards)[number], self._device)
                for index, identity in identities.items()
            }
            arguments = list(ranges.values()), str(home()), -(-n_processes // len(nodes))
            actors = [remote.options(scheduling_strategy=next(strategies)).remote(*arguments) for _ in range(self._n_replicas)]
            shards.append(Shard(number, ranges, [Replica(actor) for actor in actors]))
        return shards

    def _watch(self) -> None:
        """Check the replicas and end old generations periodically; runs in a separate thread."""
        ray = load_ray()
        while not self._is_stopping.wait(WATCH_S):
            for until in [until for until in self._old_generations if until <= time.monotonic()]:
                stop(self._old_generations.pop(until))
            try:
                check_replicas(self._served)
            except ray.exceptions.RayError as error:  # an error of the cluster itself, which may recover
                _LOG.error("the cluster does not report the state of the shards: %s", error)
            for shard in self._served:
                self._metrics.shard_replicas.labels(shard.number).set(sum(replica.is_ready for replica in shard.replicas))
                self._metrics.shard_bytes.labels(shard.number).set(max(replica.state.bytes for replica in shard.replicas))


def count_free_gpus() -> int:
    """Return the number of GPUs of the cluster that no actor has."""
    return int(load_ray().available_resources().get("GPU", 0))


def open_replicas(shards: Sequence[Shard], is_stopping: threading.Event) -> None:
    """Wait until all processes have opened their indexes; raises ``IdxError`` if one cannot, or not in time, or the server is ending."""
    ray, started = load_ray(), time.monotonic()
    reports = request_reports(shards)
    while late := ray.wait(list(reports), num_returns=len(reports), timeout=WATCH_S)[1]:
        if is_stopping.is_set() or time.monotonic() - started > _OPEN_S:
            raise IdxError(
                f"shard {reports[late[0]][0]} was not open after {time.monotonic() - started:.0f} s, when the server was ended or its "
                "patience: 'ray status' shows whether the cluster has enough resources"
            )
    for report, (number, _, replica) in reports.items():
        try:
            node = fetch(f"shard {number}", replica.handle.node.remote())
            replica.state, replica.indexes = fetch(f"shard {number} on node {node}", report)
        except ArtifactMissing as error:
            raise ArtifactMissing(f"{error}: let all nodes see the same data home (IDX_HOME)") from error
        replica.is_ready = True


def check_replicas(shards: Sequence[Shard]) -> None:
    """Check the health of all replicas; resume calls to replicas that report, and stop calls to lost or silent replicas."""
    ray, reports = load_ray(), request_reports(shards)
    ray.wait(list(reports), num_returns=len(reports), timeout=_SILENCE_S)
    for report, (number, n, replica) in reports.items():
        was_ready, task = replica.is_ready, f"shard {number}, replica {n} on node {replica.state.node}"
        message = f"{task} answers again"
        try:
            replica.state, replica.indexes = fetch(task, report, timeout=0)
            replica.is_ready = True
        except IdxError as error:
            replica.is_ready, message = False, str(error)
            ray.cancel(report)  # which does nothing to one that has failed
        if was_ready is not replica.is_ready:
            _LOG.warning("%s", message)


def request_reports(shards: Sequence[Shard]) -> dict[Any, tuple[int, int, Replica]]:
    """Request the states of all processes; return the numbers of shard and replica, and the replica, by Ray's reference of the answer."""
    return {
        replica.handle.state.options(concurrency_group="state").remote(): (shard.number, n, replica)
        for shard in shards
        for n, replica in enumerate(shard.replicas)
    }


def stop(shards: Sequence[Shard]) -> None:
    """End the processes of some shards."""
    for shard in shards:
        for replica in shard.replicas:
            load_ray().kill(replica.handle)


def serve(settings: Settings, listener: socket.socket, address: str | None, n_shards: int | None, n_replicas: int) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT, with shards on the cluster at an address; SIGHUP reloads the current indexes.

    Raises:
        InputError: the cluster cannot be reached, or the settings request several server processes.
        IdxError: see ``connect`` and ``ShardService.exchange``.
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

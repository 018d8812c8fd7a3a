"""The process of a shard: a Ray actor that opens and searches a range of rows of each served vector index."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wikidx.base.compiled import compile_always
from wikidx.base.errors import InputError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.machine.threads import limit_threads, n_threads
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, Vectors
from wikidx.indexer.build import open_vector_index, open_vectors
from wikidx.indexer.embedding.cluster.nodes import Node, load_ray, pin_to_node
from wikidx.retrievers.cluster.identity import IndexIdentity, check_identity

Answer = TypeVar("Answer")

SEARCHES_AT_ONCE = 8
_SWITCH_S = 5e-5  # as in ``server.running``: a thread that returns from native code waits 50 µs for the GIL, not 5 ms


class ShardRange(NamedTuple):
    """A range of rows of one index.

    Attributes:
        corpus: the index's corpus.
        name: the index's name.
        identity: expected identity of the index.
        rows: the range.
        device: device that searches the range.
    """

    corpus: str
    name: str
    identity: IndexIdentity
    rows: range
    device: str

    @property
    def key(self) -> str:
        """Key of the index in requests to shards."""
        return index_key(self.corpus, self.name)


def index_key(corpus: str, index: str) -> str:
    """Return the key of a corpus's index in requests to shards."""
    return f"{corpus}/{index}"


class ShardSearch(NamedTuple):
    """Request for the k best rows, in a shard's range, for each query vector; ``vectors`` has shape (Q, dim)."""

    key: str
    vectors: Vectors
    k: int
    params: SearchParams = DEFAULT_PARAMS


class ShardRescore(NamedTuple):
    """Request for exact scores; ``vectors`` has shape (Q, dim), ``rows`` has shape (Q, C) with -1 in unused slots."""

    key: str
    vectors: Vectors
    rows: Rows


class Description(NamedTuple):
    """Dimension of an index's vectors, and its search parameters."""

    dim: int
    parameters: Mapping[str, SearchParam]


class TimedAnswer(NamedTuple, Generic[Answer]):
    """The answer of a shard, and its time in seconds."""

    value: Answer
    seconds: float


class State(NamedTuple):
    """State of a shard's process: process id, Ray's node id, and resident memory in bytes."""

    pid: int
    node: str
    resident_bytes: int


class OpenRange:
    """An open range of rows of an index.

    Raises:
        ArtifactMismatch: the index on this node is not the served one.
        InputError: the index cannot be sharded, or does not fit into memory.
        ArtifactError, MissingExtraError: see ``open_vector_index``.
    """

    def __init__(self, shard_range: ShardRange) -> None:
        corpus, name, identity, rows, device = shard_range
        check_identity(corpus, name, identity)
        self._index = open_vector_index(corpus, name, identity, device=device, rows=rows)
        self._exact = open_vectors(corpus, name, identity)
        check_identity(corpus, name, identity)  # again, in case the index was replaced while it was opened
        self.description = Description(self._index.dim, dict(self._index.parameters))
        self._warm_up(shard_range)

    def search(self, request: ShardSearch) -> Hits:
        """Return the k best rows of the range for each query."""
        return self._index.search(request.vectors, request.k, request.params)

    def rescore(self, request: ShardRescore) -> Scores:
        """Return the exact scores of given rows of the range, shape (Q, C).

        Raises:
            InputError: the vectors of the index are missing.
        """
        if self._exact is None:
            raise InputError(f"'{request.key}' rescores rows by the vectors it was built from, which are not there: build them again")
        return self._exact.scores(request.vectors, request.rows)

    def _warm_up(self, shard_range: ShardRange) -> None:
        """Search and rescore once, so that the kernels are compiled before the first request."""
        compile_always()
        vector, rows = np.zeros((1, self.description.dim), dtype=np.float32), shard_range.rows
        self.search(ShardSearch(shard_range.key, vector, 1))
        if self._exact is not None:
            self.rescore(ShardRescore(shard_range.key, vector, np.arange(rows.start, min(rows.start + 1, rows.stop))[np.newaxis]))


class ShardActor:
    """Ray actor with the ranges of one process; Ray calls its methods in several threads.

    The first call opens the ranges: ``describe`` at the start, usually ``state`` after a restart. If opening fails after a restart, for
    instance because the node's files are not mounted yet, every health check tries again.

    Args:
        shard_ranges: the ranges.
        home: the data home.
        n_per_node: number of actors that share a node's CPUs.
    """

    def __init__(self, shard_ranges: Sequence[ShardRange], home: str, n_per_node: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        os.environ["IDX_HOME"] = home
        limit_threads(max(1, n_threads() // n_per_node))
        os.environ["OMP_NUM_THREADS"] = str(n_threads())  # Ray sets 1; overridden before FAISS is loaded
        self._holdings = shard_ranges
        self._opening = threading.Lock()
        self._ranges: Mapping[str, OpenRange] = {}

    def describe(self) -> dict[str, Description]:
        """Return the descriptions of the indexes by key; raises as ``OpenRange`` does."""
        return {key: opened.description for key, opened in self._open().items()}

    def search(self, request: ShardSearch) -> TimedAnswer[Hits]:
        """Search the range of the index ``request.key``."""
        opened = self._open()[request.key]
        return _time_call(lambda: opened.search(request))

    def rescore(self, request: ShardRescore) -> TimedAnswer[Scores]:
        """Score given rows of the index ``request.key``."""
        opened = self._open()[request.key]
        return _time_call(lambda: opened.rescore(request))

    def state(self) -> State:
        """Return the state of the process; raises as ``describe`` does."""
        self._open()
        node = str(load_ray().get_runtime_context().get_node_id())
        return State(os.getpid(), node, _resident_bytes())

    def _open(self) -> Mapping[str, OpenRange]:
        with self._opening:
            if not self._ranges:
                self._ranges = {shard_range.key: OpenRange(shard_range) for shard_range in self._holdings}
            return self._ranges


def start_actor(shard_ranges: Sequence[ShardRange], node: Node, *, home: str, n_per_node: int, n_gpus: float) -> Any:  # noqa: ANN401 - Ray's
    """Start an actor on a node; Ray restarts a lost actor, on another node if its node is lost."""
    actor = load_ray().remote(
        num_cpus=0,  # not reserved: actors share the node's CPUs, as processes on one machine do
        num_gpus=n_gpus,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=SEARCHES_AT_ONCE,
        concurrency_groups={"state": 1},  # health checks do not wait for searches
        scheduling_strategy=pin_to_node(node, soft=True),
    )(ShardActor)
    return actor.remote(list(shard_ranges), home, n_per_node)


def _time_call(answer: Callable[[], Answer]) -> TimedAnswer[Answer]:
    """Return an answer and its time. After the loss of a GPU this process ends, and Ray starts another."""
    started = time.perf_counter()
    try:
        return TimedAnswer(answer(), time.perf_counter() - started)
    except DeviceLost as error:
        sys.stderr.write(f"{error}\n")
        os._exit(1)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0

"""The process that holds a shard, as a Ray actor: it opens and searches a range of rows of each served vector index."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wikidx.corpora.errors import InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, Vectors
from wikidx.indexer.build import open_vector_index, open_vectors
from wikidx.indexer.catalog import IndexIdentity, check_identity
from wikidx.indexer.embedding.cluster.nodes import Node, load_ray, pinned
from wikidx.indexer.machine.threads import limit_threads, n_threads

Answer = TypeVar("Answer")

SEARCHES_AT_ONCE = 8
_SWITCH_S = 5e-5  # as in a server: a thread that returns from a kernel gets the interpreter at once, not after 5 ms


class Holding(NamedTuple):
    """A range of rows of one index.

    Attributes:
        corpus: its corpus.
        name: the index's.
        identity: expected identity of the index.
        rows: the range.
        device: device of its searches.
    """

    corpus: str
    name: str
    identity: IndexIdentity
    rows: range
    device: str

    @property
    def key(self) -> str:
        """Key of the index in calls."""
        return key_of(self.corpus, self.name)


def key_of(corpus: str, index: str) -> str:
    """Return the key of a corpus's index in calls."""
    return f"{corpus}/{index}"


class Search(NamedTuple):
    """Request for the k best rows of a range, for vectors of shape (Q, dim)."""

    key: str
    vectors: Vectors
    k: int
    params: SearchParams = DEFAULT_PARAMS


class Rescore(NamedTuple):
    """Request for the exact scores of rows of a range, shape (Q, C), -1 for unused places."""

    key: str
    vectors: Vectors
    rows: Rows


class Description(NamedTuple):
    """Description of an index with an open range: components of its vectors, its search parameters."""

    dim: int
    parameters: Mapping[str, SearchParam]


class Timed(NamedTuple, Generic[Answer]):
    """An answer, and the shard's own seconds for it."""

    value: Answer
    seconds: float


class State(NamedTuple):
    """State of a shard's process: its number, its node, and its memory."""

    pid: int
    node: str
    resident_bytes: int


class OpenRange:
    """An open range of rows.

    Raises:
        ArtifactMismatch: the index here is not the served one.
        InputError: it cannot be sharded, or does not fit into memory.
        ArtifactError, MissingExtraError: see ``open_vector_index``.
    """

    def __init__(self, holding: Holding) -> None:
        corpus, name, identity, rows, device = holding
        check_identity(corpus, name, identity)
        self._index = open_vector_index(corpus, name, identity, device=device, rows=rows)
        self._exact = open_vectors(corpus, name, identity)
        check_identity(corpus, name, identity)  # not replaced while it was being opened
        self.description = Description(self._index.dim, dict(self._index.parameters))
        self._warm_up(holding)

    def search(self, asked: Search) -> Hits:
        """Return the k best of these rows for each query."""
        return self._index.search(asked.vectors, asked.k, asked.params)

    def rescore(self, asked: Rescore) -> Scores:
        """Return the exact scores of some of these rows, shape (Q, C).

        Raises:
            InputError: the vectors are not there.
        """
        if self._exact is None:
            raise InputError(f"'{asked.key}' rescores rows by the vectors it was built from, which are not there: build them again")
        return self._exact.scores(asked.vectors, asked.rows)

    def _warm_up(self, holding: Holding) -> None:
        """Search once: an installation's first search compiles kernels, which takes longer than a request may."""
        vector, rows = np.zeros((1, self.description.dim), dtype=np.float32), holding.rows
        self.search(Search(holding.key, vector, 1))
        if self._exact is not None:
            self.rescore(Rescore(holding.key, vector, np.arange(rows.start, min(rows.start + 1, rows.stop))[np.newaxis]))


class ShardActor:
    """The ranges of one process; its methods are called from several threads.

    ``describe`` opens them, and so does ``state`` after Ray has restarted the process. If opening fails then, for instance because a node
    is back before its files, every health check tries again.

    Args:
        holdings: the ranges.
        home: the data home.
        n_per_node: number of such actors on a node, which share its CPUs.
    """

    def __init__(self, holdings: Sequence[Holding], home: str, n_per_node: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        os.environ["IDX_HOME"] = home
        limit_threads(max(1, n_threads() // n_per_node))
        os.environ["OMP_NUM_THREADS"] = str(n_threads())  # Ray sets 1, before FAISS is loaded
        self._holdings = holdings
        self._opening = threading.Lock()
        self._ranges: Mapping[str, OpenRange] = {}

    def describe(self) -> dict[str, Description]:
        """Return descriptions of the open indexes; raises errors of opening, see ``OpenRange``."""
        return {key: opened.description for key, opened in self._open().items()}

    def search(self, asked: Search) -> Timed[Hits]:
        """Search one range."""
        opened = self._open()[asked.key]
        return _timed(lambda: opened.search(asked))

    def rescore(self, asked: Rescore) -> Timed[Scores]:
        """Score given rows of one range."""
        opened = self._open()[asked.key]
        return _timed(lambda: opened.rescore(asked))

    def state(self) -> State:
        """Return the state of the process; raises as ``describe`` does."""
        self._open()
        node = str(load_ray().get_runtime_context().get_node_id())
        return State(os.getpid(), node, _resident_bytes())

    def _open(self) -> Mapping[str, OpenRange]:
        with self._opening:
            if not self._ranges:
                self._ranges = {holding.key: OpenRange(holding) for holding in self._holdings}
            return self._ranges


def start_actor(holdings: Sequence[Holding], node: Node, *, home: str, n_per_node: int, n_gpus: float) -> Any:  # noqa: ANN401 - Ray's
    """Start an actor on a node; if it is lost Ray restarts it, on another node if that one is gone."""
    actor = load_ray().remote(
        num_cpus=0,  # it holds memory for as long as it lives; CPUs are shared as on one machine
        num_gpus=n_gpus,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=SEARCHES_AT_ONCE,
        concurrency_groups={"state": 1},  # health checks do not queue behind searches
        scheduling_strategy=pinned(node, soft=True),
    )(ShardActor)
    return actor.remote(list(holdings), home, n_per_node)


def _timed(answer: Callable[[], Answer]) -> Timed[Answer]:
    started = time.perf_counter()
    return Timed(answer(), time.perf_counter() - started)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0

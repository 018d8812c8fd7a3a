"""The process of a shard: a Ray actor that opens and searches a range of rows of each served vector index."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wikidx.base.cluster import NodeActor
from wikidx.base.compiled import compile_always
from wikidx.base.errors import ArtifactError, ArtifactMismatch, InputError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.machine.threads import limit_threads, n_threads
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Scores, SearchParam, Vectors
from wikidx.indexer.build import open_vector_index, open_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.corpus_vectors import vectors_identity

# As in ``server.running``: a thread that returns from native code waits 50 µs for the GIL, not 5 ms.
_SWITCH_S = 5e-5

Index = tuple[str, str]  # corpus, index
Description = tuple[int, Mapping[str, SearchParam]]  # dimension of an index's vectors, its search parameters


class IndexIdentity(NamedTuple):
    """Identity of an index on disk, by which all machines know that they serve the same one, also if another is built at its path."""

    fingerprint: str  # of the corpus
    files: str  # sha256 of the checksums of the index's files
    vectors: str  # the same of the encoder's vectors, which rescoring reads; empty if they do not exist
    n_rows: int


def index_identity(corpus: str, name: str) -> IndexIdentity:
    """Return the identity of the index on disk; raises as ``IndexRef.manifest`` does."""
    ref = index_ref(corpus, name)
    manifest = ref.manifest(None)
    vectors = vectors_identity(ref.vectors.manifest(manifest.fingerprint)) if ref.vectors.is_built else ""
    return IndexIdentity(manifest.fingerprint, vectors_identity(manifest), vectors, manifest.count("rows"))


def check_identity(corpus: str, name: str, expected: IndexIdentity) -> None:
    """Raise ``ArtifactMismatch`` unless the index on disk is the expected one."""
    for field, value, expected_value in zip(("passages", "files", "vectors", "rows"), index_identity(corpus, name), expected, strict=True):
        if value != expected_value:
            raise ArtifactMismatch(
                f"{index_ref(corpus, name).path} is not the served index: its {field} are {value!s:.12}, not {expected_value!s:.12}: "
                "let all machines see the same data home, and start again"
            )


class ShardRange(NamedTuple):
    """A range of rows of an index, the index's expected identity, and the device that searches it."""

    key: Index
    identity: IndexIdentity
    rows: range
    device: str


class State(NamedTuple):
    """State of a shard's process: the address of its node, its number and resident bytes."""

    node: str
    process: int
    bytes: int


class OpenRange:
    """An open range of rows of an index, with its ``search``; raises as ``check_identity`` and ``open_vector_index`` do."""

    def __init__(self, shard_range: ShardRange) -> None:
        (corpus, self._name), identity, rows, device = shard_range
        check_identity(corpus, self._name, identity)
        index = open_vector_index(corpus, self._name, identity, device=device, rows=rows)
        self._exact = open_vectors(corpus, self._name, identity)
        check_identity(corpus, self._name, identity)  # again, in case the index was replaced while it was opened
        self.search, self.description = index.search, (index.dim, dict(index.parameters))
        compile_always()  # the kernels, before the first request
        vector = np.zeros((1, index.dim), dtype=np.float32)
        self.search(vector, 1)
        if self._exact is not None:
            self.scores(vector, np.array([rows[:1]], dtype=np.int64))

    def scores(self, vectors: Vectors, rows: Rows) -> Scores:
        """Return the exact scores of given rows of the range, shape (Q, C), with -1 in unused slots."""
        if self._exact is None:
            raise InputError(f"'{self._name}' rescores rows by the vectors it was built from, which are not there: build them again")
        return self._exact.scores(vectors, rows)


class ShardActor(NodeActor):
    """Ray actor with the ranges of one process, one of ``n_per_node`` that share a node's CPUs; Ray calls it in several threads.

    The first ``state`` opens the ranges. If that fails after a restart, for instance because the node's files are not mounted yet, every
    health check tries again.
    """

    def __init__(self, ranges: Sequence[ShardRange], home: str, n_per_node: int) -> None:
        sys.setswitchinterval(_SWITCH_S)
        os.environ["IDX_HOME"] = home
        limit_threads(max(1, n_threads() // n_per_node))
        os.environ["OMP_NUM_THREADS"] = str(n_threads())  # Ray sets 1; overridden before FAISS is loaded
        self._ranges = ranges
        self._opened: Mapping[Index, OpenRange] = {}

    def state(self) -> tuple[State, Mapping[Index, Description]]:
        """Return the state of the process and its open indexes; raises as ``OpenRange`` does. Only one thread calls it at a time."""
        self._opened = self._opened or {shard_range.key: OpenRange(shard_range) for shard_range in self._ranges}
        statm = Path("/proc/self/statm")  # on Linux
        n_bytes = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
        return State(self.node(), os.getpid(), n_bytes), {index: opened.description for index, opened in self._opened.items()}

    def call(self, method: str, index: Index, *arguments: Any) -> tuple[Any, float]:  # noqa: ANN401 - passed on
        """Return the answer of a method of ``OpenRange``, and its time in seconds. After the loss of a GPU Ray replaces this process."""
        opened, started = self._opened.get(index), time.perf_counter()
        if opened is None:
            raise ArtifactError("it was started again and is not open yet")
        try:
            return getattr(opened, method)(*arguments), time.perf_counter() - started
        except DeviceLost as error:
            sys.stderr.write(f"{error}\n")
            os._exit(1)

"""The process of a shard: a Ray actor that opens and searches a range of rows of each served vector index."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wikidx.base.cluster import NodeActor
from wikidx.base.compiled import compile_always
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.machine.threads import limit_threads, n_threads
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, Vectors
from wikidx.indexer.build import open_vector_index, open_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.corpus_vectors import vectors_identity

_SWITCH_S = 5e-5  # as in ``server.running``: a thread that returns from native code waits 50 µs for the GIL, not 5 ms


class IndexIdentity(NamedTuple):
    """Identity of an index on disk, by which all machines know that they serve the same one, also if another is built at its path.

    Attributes:
        fingerprint: fingerprint of the corpus.
        files: sha256 of the checksums of the index's files.
        vectors: sha256 of the checksums of the encoder's vectors, which rescoring reads; empty if they do not exist.
        n_rows: number of rows of the corpus.
    """

    fingerprint: str
    files: str
    vectors: str
    n_rows: int


def index_identity(corpus: str, name: str) -> IndexIdentity:
    """Return the identity of the index on disk.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactCorrupt: see ``IndexRef.manifest``.
    """
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
    """A range of rows of one index, its expected identity, and the device that searches it."""

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


class Description(NamedTuple):
    """Dimension of an index's vectors, and its search parameters."""

    dim: int
    parameters: Mapping[str, SearchParam]


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
        self._name, self._index = name, open_vector_index(corpus, name, identity, device=device, rows=rows)
        self._exact = open_vectors(corpus, name, identity)
        check_identity(corpus, name, identity)  # again, in case the index was replaced while it was opened
        self.description = Description(self._index.dim, dict(self._index.parameters))
        compile_always()  # the kernels, before the first request
        vector = np.zeros((1, self._index.dim), dtype=np.float32)
        self.search(vector, 1)
        if self._exact is not None:
            self.scores(vector, np.array([rows[:1]], dtype=np.int64))

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows of the range for each query vector; ``vectors`` has shape (Q, dim)."""
        return self._index.search(vectors, k, params)

    def scores(self, vectors: Vectors, rows: Rows) -> Scores:
        """Return the exact scores of given rows of the range, shape (Q, C), with -1 in unused slots.

        Raises:
            InputError: the vectors of the index are missing.
        """
        if self._exact is None:
            raise InputError(f"'{self._name}' rescores rows by the vectors it was built from, which are not there: build them again")
        return self._exact.scores(vectors, rows)


class ShardActor(NodeActor):
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
        self._shard_ranges, self._opening = shard_ranges, threading.Lock()
        self._ranges: Mapping[str, OpenRange] = {}

    def describe(self) -> dict[str, Description]:
        """Return the descriptions of the indexes by key; raises as ``OpenRange`` does."""
        return {key: opened.description for key, opened in self._open().items()}

    def state(self) -> tuple[str, dict[str, int]]:
        """Return Ray's id of the node, and the process's id and resident bytes; raises as ``describe`` does."""
        self._open()
        statm = Path("/proc/self/statm")  # on Linux
        n_bytes = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0
        return self.node(), {"process": os.getpid(), "bytes": n_bytes}

    def call(self, method: str, key: str, *arguments: Any) -> tuple[Any, float]:  # noqa: ANN401 - passed on
        """Return the answer of a method of ``OpenRange``, and its time in seconds. After the loss of a GPU Ray replaces this process."""
        opened, started = self._open()[key], time.perf_counter()
        try:
            return getattr(opened, method)(*arguments), time.perf_counter() - started
        except DeviceLost as error:
            sys.stderr.write(f"{error}\n")
            os._exit(1)

    def _open(self) -> Mapping[str, OpenRange]:
        with self._opening:
            if not self._ranges:
                self._ranges = {shard_range.key: OpenRange(shard_range) for shard_range in self._shard_ranges}
            return self._ranges

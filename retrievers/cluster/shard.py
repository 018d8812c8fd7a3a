"""What one process holds: a range of rows of each index that is served, opened and searched in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from corpora.errors import InputError
from corpora.store import Rows
from indexer import INDEXES
from indexer.base import Hits, LexicalIndex, VectorIndex
from indexer.rescoring import Rescorer
from indexer.row_range import IndexIdentity, check_identity, open_lexical_range, open_range_rescorer, open_vector_range

from .sharded import Asked, AskedRows, Described, Timed


class Holding(NamedTuple):
    """A range of rows of one index.

    Attributes:
        corpus: its corpus.
        name: the index's.
        identity: which index that has to be.
        rows: the range.
        device: where it is searched.
    """

    corpus: str
    name: str
    identity: IndexIdentity
    rows: range
    device: str


class OpenRange:
    """An open range of rows.

    Raises:
        ArtifactMismatch: the index that is here is another one than that which is served.
        InputError: it cannot be searched in parts, or has no room.
        ArtifactError, MissingExtraError: see ``indexer.row_range``.
    """

    def __init__(self, holding: Holding) -> None:
        corpus, name, identity, rows, device = holding
        check_identity(corpus, name, identity)
        self._lexical: LexicalIndex | None = None
        self._vectors: VectorIndex | None = None
        self._exact: Rescorer | None = None
        if name in INDEXES:
            self._lexical = open_lexical_range(corpus, name, identity.fingerprint, rows)
            self.described = Described(0, {}, "BM25 in memory")
        else:
            self._vectors = open_vector_range(corpus, name, identity.fingerprint, rows, device=device)
            self._exact = open_range_rescorer(corpus, name, identity.fingerprint)
            self.described = Described(self._vectors.dim, dict(self._vectors.parameters), self._vectors.placement.reason)
        check_identity(corpus, name, identity)  # what was opened was it throughout
        self._warm_up(rows)

    def search(self, asked: Asked) -> Hits:
        """Return the k best of these rows for each query."""
        if self._vectors is not None:
            return self._vectors.search(asked.queries, asked.k, asked.params)  # type: ignore[arg-type]  # vectors, for such an index
        return self._words.search(asked.queries, asked.k)  # type: ignore[arg-type]  # texts

    def rescore(self, asked: AskedRows) -> Any:  # noqa: ANN401 - see ``Shard.rescore``
        """Return what some of these rows score.

        Raises:
            InputError: the vectors are not there.
        """
        if self._vectors is None:
            return self._words.rescore(asked.queries, asked.rows)  # type: ignore[arg-type]
        if self._exact is None:
            raise InputError(f"'{asked.name}' rescores rows by the vectors it was built from, which are not there: build them again")
        rows: Rows = asked.rows  # type: ignore[assignment]
        return self._exact.scores(asked.queries, rows)  # type: ignore[arg-type]

    def _warm_up(self, rows: range) -> None:
        """Search once: an installation's first search compiles kernels, which takes longer than a request may."""
        dim = self.described.dim
        self.search(Asked("", np.zeros((1, dim), dtype=np.float32) if dim else ["warm up"], 1))
        if dim and self._exact is None:
            return
        some = np.arange(rows.start, min(rows.start + 1, rows.stop))
        self.rescore(AskedRows("", np.zeros((1, dim), dtype=np.float32), some[np.newaxis]) if dim else AskedRows("", ["warm up"], [some]))

    @property
    def _words(self) -> LexicalIndex:
        if self._lexical is None:
            raise InputError("this index is searched by vectors")
        return self._lexical


class OpenShard:
    """The ranges that one process holds, by the names under which they are asked: ``name_of`` says which. May be used by several threads.

    Raises:
        ArtifactError, InputError, MissingExtraError: see ``OpenRange``.
    """

    def __init__(self, holdings: Sequence[Holding]) -> None:
        self._open = {name_of(holding.corpus, holding.name): OpenRange(holding) for holding in holdings}
        self.described = {name: found.described for name, found in self._open.items()}

    def search(self, asked: Asked) -> Timed[Hits]:
        """Search; see ``Shard``."""
        started = time.perf_counter()
        return Timed(self._open[asked.name].search(asked), time.perf_counter() - started)

    def rescore(self, asked: AskedRows) -> Timed[Any]:
        """Score given rows; see ``Shard``."""
        started = time.perf_counter()
        return Timed(self._open[asked.name].rescore(asked), time.perf_counter() - started)


def name_of(corpus: str, index: str) -> str:
    """Return the name under which an index of a corpus is asked."""
    return f"{corpus}/{index}"

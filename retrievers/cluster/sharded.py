"""Indexes made of ranges of rows that are searched elsewhere, all at once: for each batch of queries every range is asked once.

They are what ``BM25Retriever`` and ``DenseRetriever`` take for an index, and find what the whole index would have found: so queries are
encoded once, where the request is answered, and all that follows is the same as on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from corpora.store import Rows
from indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, Placement, Scores, SearchParam, SearchParams, Vectors
from retrievers.errors import ShardUnavailable
from retrievers.partial import NotSearched, is_partial_allowed, note_lost

from .merging import merged

Answer = TypeVar("Answer")
Queries = Sequence[str] | Vectors


class Asked(NamedTuple):
    """What a range is asked.

    Attributes:
        name: the index, whose rows.
        queries: texts, or vectors of shape (Q, dim).
        k: results for each.
        params: of the search.
    """

    name: str
    queries: Queries
    k: int
    params: SearchParams = DEFAULT_PARAMS


class Described(NamedTuple):
    """What is known of an index once a range of it is open: components of its vectors (0 without), its parameters, where it is searched."""

    dim: int
    parameters: Mapping[str, SearchParam]
    placement: str


class AskedRows(NamedTuple):
    """The same for scores of given rows: for each text its rows, ascending; for vectors rows of shape (Q, C), -1 where there is none."""

    name: str
    queries: Queries
    rows: Sequence[Rows] | Rows


class Timed(NamedTuple, Generic[Answer]):
    """An answer, and the seconds that it took where it was found."""

    value: Answer
    seconds: float


class Shard(Protocol):
    """A range of rows that is searched elsewhere. Both methods begin at once; what they return waits for the answer."""

    def range_of(self, name: str) -> range:
        """Return which rows of an index it has."""
        ...

    def search(self, asked: Asked) -> Callable[[], Timed[Hits]]:
        """Begin to search; what is returned raises ``ShardUnavailable`` if nobody answers."""
        ...

    def rescore(self, asked: AskedRows) -> Callable[[], Timed[Any]]:
        """Begin to score given rows of the range: a list of scores for texts, scores of shape (Q, C) for vectors."""
        ...


Observe = Callable[[float, float], None]
"""Called after a search with the seconds of its slowest range, and those that it took beyond these."""


def nobody(slowest_s: float, beyond_s: float) -> None:
    """Look away."""


def as_it_is(asked: Asked) -> Asked:
    """Return what all ranges are asked."""
    return asked


class Around(NamedTuple):
    """What is done around the searches of all ranges.

    Attributes:
        observe: is told what they take.
        shared: makes of what all are asked what each is handed, once for all.
    """

    observe: Observe = nobody
    shared: Callable[[Asked], Asked] = as_it_is


NOTHING_AROUND = Around()


class _Sharded:
    """The ranges of one index."""

    def __init__(self, name: str, shards: Sequence[Shard], around: Around = NOTHING_AROUND) -> None:
        self._name, self._around = name, around
        ranges = [(shard.range_of(name), shard) for shard in shards]
        self._shards = [(rows, shard) for rows, shard in ranges if len(rows)]
        self._n_rows = max((rows.stop for rows, _ in ranges), default=0)

    def __len__(self) -> int:
        return self._n_rows

    def _found(self, queries: Queries, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Search all ranges."""
        if not len(queries):
            return merged([], 0, k)
        started = time.perf_counter()
        asked = self._around.shared(Asked(self._name, queries, min(k, len(self)), params))
        parts = self._answers([(rows, shard.search(asked)) for rows, shard in self._shards])
        hits = merged([found.value for found in parts.values()], len(queries), k)
        slowest_s = max((found.seconds for found in parts.values()), default=0.0)
        self._around.observe(slowest_s, time.perf_counter() - started - slowest_s)
        return hits

    def _answers(self, begun: Sequence[tuple[range, Callable[[], Answer]]]) -> dict[range, Answer]:
        """Wait for all answers; where the search may be partial, those that cannot be had are left out and noted."""
        found = dict[range, Answer]()
        for rows, answer in begun:
            try:
                found[rows] = answer()
            except ShardUnavailable:
                if not is_partial_allowed():
                    raise
                note_lost(NotSearched(self._name.rpartition("/")[2], rows.start, rows.stop))
        return found


class ShardedLexicalIndex(_Sharded):
    """A lexical index; see ``indexer.base.LexicalIndex``.

    Args:
        name: the index's, which the shards know it by.
        shards: consecutive ranges that make up all its rows.
        around: what is done around searches.
    """

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best rows for each query.

        Raises:
            ShardUnavailable: a range cannot be searched, and the search must be whole.
        """
        return self._found(list(queries), k)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows, ascending, for each query; raises as ``search`` does."""
        scores = [np.full(len(of_query), -np.inf, dtype=np.float32) for of_query in rows]
        begun, places = [], {}
        for here, shard in self._shards:
            bounds = [np.searchsorted(of_query, (here.start, here.stop)).tolist() for of_query in rows]
            which = [number for number, (low, high) in enumerate(bounds) if low < high]
            if which:
                mine = [rows[number][slice(*bounds[number])] for number in which]
                begun.append((here, shard.rescore(AskedRows(self._name, [queries[number] for number in which], mine))))
                places[here] = [(number, slice(*bounds[number])) for number in which]
        for here, found in self._answers(begun).items():
            for (number, some), part in zip(places[here], found.value, strict=True):
                scores[number][some] = part
        return scores


class ShardedVectorIndex(_Sharded):
    """An index over vectors; see ``indexer.base.VectorIndex``.

    Where it rescores candidates (``refine``), these are the best of all ranges, as in the whole index, and not of each.

    Args:
        name: the index's, which the shards know it by.
        shards: consecutive ranges that make up all its rows.
        described: components of a vector, parameters of its searches.
        around: what is done around searches.
    """

    def __init__(self, name: str, shards: Sequence[Shard], described: Described, around: Around = NOTHING_AROUND) -> None:
        super().__init__(name, shards, around)
        self.dim, self.parameters = described.dim, described.parameters
        self.placement = Placement((), f"'{name}' in {len(shards)} shards")

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows that were found for each of the (Q, dim) query vectors.

        Raises:
            InputError: a parameter is set beyond what the index has, or the vectors to rescore from are not there.
            ShardUnavailable: a range cannot be searched, and the search must be whole.
        """
        refine = params.refine if params.refine is not None else self.parameters["refine"].default if "refine" in self.parameters else 0
        if not refine or "refine" not in self.parameters or refine > self.parameters["refine"].largest:  # which a shard refuses
            return self._found(vectors, k, params)
        width = min(k, len(self)) * refine
        rows = self._found(vectors, min(width, len(self)), SearchParams(nprobe=params.nprobe, ef_search=params.ef_search, refine=0)).rows
        scores = self.scores(vectors, rows)
        return merged([Hits(np.where(np.isneginf(scores), NO_ROW, rows), scores)], len(vectors), k)

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return exact scores of given rows; see ``indexer.rescoring.Rescorer``. Raises as ``search`` does."""
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        begun, places = [], {}
        for here, shard in self._shards:
            is_here = (rows >= here.start) & (rows < here.stop)
            counts = is_here.sum(axis=1)
            which = np.flatnonzero(counts)
            if len(which):
                order = np.argsort(~is_here[which], axis=1, kind="stable")[:, : counts.max()]
                mine = np.where(
                    np.arange(order.shape[1]) < counts[which, np.newaxis], np.take_along_axis(rows[which], order, axis=1), NO_ROW
                )
                begun.append((here, shard.rescore(AskedRows(self._name, queries[which], mine))))
                places[here] = which, order, mine
        for here, found in self._answers(begun).items():
            which, order, mine = places[here]
            lines, columns = np.nonzero(mine != NO_ROW)
            scores[which[lines], order[lines, columns]] = found.value[lines, columns]
        return scores

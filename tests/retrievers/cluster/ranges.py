"""An index in this process, cut into ranges of rows, beside the whole one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from indexer.base import Hits
from indexer.row_range import index_identity
from retrievers.cluster.shard import Holding, OpenRange, OpenShard, name_of
from retrievers.cluster.sharded import Asked, AskedRows, ShardedLexicalIndex, ShardedVectorIndex, Timed


class LocalShard:
    """A ``sharded.Shard`` in this process."""

    def __init__(self, holdings: Sequence[Holding]) -> None:
        self._ranges = {name_of(holding.corpus, holding.name): holding.rows for holding in holdings}
        self._open = OpenShard(holdings)

    def range_of(self, name: str) -> range:
        """Return which rows of an index it has."""
        return self._ranges[name]

    def search(self, asked: Asked) -> Callable[[], Timed[Hits]]:
        """Search; see ``Shard``."""
        return lambda: self._open.search(asked)

    def rescore(self, asked: AskedRows) -> Callable[[], Timed[Any]]:
        """Score given rows; see ``Shard``."""
        return lambda: self._open.rescore(asked)


def local_shards(name: str, bounds: Sequence[int], corpus: str = "made") -> list[LocalShard]:
    """Open the ranges between consecutive bounds; equal ones make an empty range."""
    identity = index_identity(corpus, name)
    rows = [range(start, stop) for start, stop in pairwise([0, *sorted(bounds), identity.n_rows])]
    return [LocalShard([Holding(corpus, name, identity, some, "cpu")]) for some in rows]


def sharded_words(bounds: Sequence[int], corpus: str = "made") -> ShardedLexicalIndex:
    return ShardedLexicalIndex(name_of(corpus, "bm25"), local_shards("bm25", bounds, corpus))


def sharded_vectors(name: str, bounds: Sequence[int]) -> ShardedVectorIndex:
    described = OpenRange(Holding("made", name, index_identity("made", name), range(0, 1), "cpu")).described
    return ShardedVectorIndex(name_of("made", name), local_shards(name, bounds), described)

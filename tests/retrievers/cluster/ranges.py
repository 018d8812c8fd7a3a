"""An index over vectors in this process, split into ranges of rows, and the whole one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Generic

from wikidx.indexer.base import Hits, Scores
from wikidx.retrievers.cluster.identity import index_identity
from wikidx.retrievers.cluster.shard import Answer, OpenRange, ShardRange, ShardRescore, ShardSearch, TimedAnswer, index_key
from wikidx.retrievers.cluster.sharded import ShardedIndex
from wikidx.retrievers.errors import ShardUnavailable


class LocalCall(Generic[Answer]):
    """A ``sharded.Call`` that is answered when its result is requested, unless it is lost."""

    def __init__(self, answer: Callable[[], Answer], *, is_lost: bool) -> None:
        self._answer, self._is_lost = answer, is_lost
        self.is_cancelled = False

    def result(self) -> TimedAnswer[Answer]:
        if self._is_lost:
            raise ShardUnavailable("it is lost")
        return TimedAnswer(self._answer(), 0.0)

    def cancel(self) -> None:
        self.is_cancelled = True


class LocalShard:
    """A ``sharded.Shard`` in this process."""

    def __init__(self, shard_range: ShardRange) -> None:
        self.ranges: Mapping[str, range] = {shard_range.key: shard_range.rows}
        self.opened, self.is_lost = OpenRange(shard_range), False
        self.calls = list[LocalCall[Hits]]()

    def search(self, asked: ShardSearch) -> LocalCall[Hits]:
        self.calls.append(LocalCall(lambda: self.opened.search(asked), is_lost=self.is_lost))
        return self.calls[-1]

    def rescore(self, asked: ShardRescore) -> LocalCall[Scores]:
        return LocalCall(lambda: self.opened.rescore(asked), is_lost=self.is_lost)


def local_shards(name: str, bounds: Sequence[int]) -> list[LocalShard]:
    """Open the ranges between consecutive bounds; equal ones make an empty range."""
    identity = index_identity("made", name)
    rows = [range(start, stop) for start, stop in pairwise([0, *sorted(bounds), identity.n_rows])]
    return [LocalShard(ShardRange("made", name, identity, some, "cpu")) for some in rows]


def sharded_vectors(name: str, bounds: Sequence[int]) -> ShardedIndex:
    shards = local_shards(name, bounds)
    return ShardedIndex(index_key("made", name), shards, shards[0].opened.description)

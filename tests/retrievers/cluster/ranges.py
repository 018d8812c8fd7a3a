"""An index in this process, cut into ranges of rows, beside the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from indexer.row_range import index_identity
from retrievers.cluster.shard import Holding, LocalShard, OpenRange, name_of
from retrievers.cluster.sharded import ShardedLexicalIndex, ShardedVectorIndex


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

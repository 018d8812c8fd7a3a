"""The cache of a retriever: what it asks for and what it keeps; that its answers are those of the retriever is part of the contract."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.retrieving import Forwarding
from wikidx.corpora.build import open_store
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParam, SearchParams
from wikidx.retrievers.cache import CachedRetriever
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.opening import open_retriever, open_searcher

LARGE = 1 << 20
QUERIES = [f"fox number {n}" for n in range(13)] + ["", "xyzzy", "fox number 3"]


class Recorder(Forwarding):
    """Records the queries, and gives other scores with another nprobe."""

    def __init__(self) -> None:
        super().__init__(open_retriever("made", "bm25", open_store("made")))
        self.parameters = {"nprobe": SearchParam(8, 64)}
        self.asked: list[list[str]] = []
        self._lock = threading.Lock()

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        with self._lock:
            self.asked.append(list(queries))
        hits = super().retrieve(queries, depth)
        return Hits(hits.rows, hits.scores + np.float32(params.nprobe or 8))


@pytest.fixture
def recorder(made: Path) -> Recorder:
    return Recorder()


def is_same(hits: Hits, expected: Hits) -> bool:
    return hits.rows.tobytes() == expected.rows.tobytes() and hits.scores.tobytes() == expected.scores.tobytes()


def test_what_was_found_before_is_found_again_without_a_search(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    expected = recorder.retrieve(QUERIES, 20)
    recorder.asked.clear()
    assert is_same(cached.retrieve(QUERIES[:5], 20), Hits(expected.rows[:5], expected.scores[:5]))
    assert is_same(cached.retrieve(QUERIES, 20), expected)
    assert is_same(cached.retrieve(QUERIES[::-1], 20), Hits(expected.rows[::-1], expected.scores[::-1]))
    assert recorder.asked == [QUERIES[:5], list(dict.fromkeys(QUERIES[5:-1]))]
    assert (cached.n_hits, cached.n_misses) == (5 + 1 + len(QUERIES), 5 + len(QUERIES) - 6)


def test_another_depth_and_other_parameters_are_another_search(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    assert cached.parameters == recorder.parameters
    searches = [(20, DEFAULT_PARAMS), (5, DEFAULT_PARAMS), (5, SearchParams(nprobe=1)), (5, SearchParams(nprobe=64))]
    for depth, params in searches * 2:
        assert is_same(cached.retrieve(QUERIES[:3], depth, params), recorder.retrieve(QUERIES[:3], depth, params))
    assert (cached.n_hits, cached.n_misses) == (12, 12)
    assert len(recorder.asked) == 4 + 8  # four of them the cache's


def test_the_least_recently_asked_are_forgotten_first(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, 1900)  # two entries of 10 places, on every Python
    for number in (1, 2, 1, 3, 1, 2):
        cached.retrieve([f"fox {number}"], 10)
    assert recorder.asked == [["fox 1"], ["fox 2"], ["fox 3"], ["fox 2"]]


def test_memory_is_bounded(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, 20_000)
    for _ in range(2):
        cached.retrieve([f"fox number {n}" for n in range(500)], 20)
        entries = cached._entries.values()
        assert 10 < len(entries) < 30
        assert cached._n_bytes <= 20_000
        assert all(part.base is None for hits in entries for part in hits)  # none is a view of the batch
    with pytest.raises(ValueError, match="max_bytes is 0"):
        CachedRetriever(recorder, 0)


def test_a_searcher_may_have_one(made: Path) -> None:
    plain, cached = open_searcher("made", "bm25"), open_searcher("made", "bm25", cache_bytes=LARGE)
    assert cached.search(QUERIES) == cached.search(QUERIES) == plain.search(QUERIES)


def test_what_may_lack_rows_is_not_remembered(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    with cancellation_scope(unsearched=set()):
        cached.retrieve(QUERIES[:2], 20)
    cached.retrieve(QUERIES[:2], 20)
    assert recorder.asked == [QUERIES[:2]] * 2

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams
from wikidx.indexer.build import build_index
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.cache import CachedRetriever
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.opening import open_retriever, open_searcher

LARGE = 1 << 20
QUERIES = [f"subject {n}" for n in range(13)] + ["", "xyzzy", "subject 3"]


class Recorder:
    """A retriever that forwards queries and records them."""

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._lock = threading.Lock()
        self.asked: list[list[str]] = []

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        with self._lock:
            self.asked.append(list(queries))
        return self._retriever.retrieve(queries, depth)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        return self._retriever.rescore(queries, rows)


@pytest.fixture
def recorder(build: Callable[..., PassageStore], made_passages: list[Passage]) -> Recorder:
    store = build(made_passages)
    build_index("made", "bm25", store)
    return Recorder(open_retriever("made", "bm25", store))


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


def test_another_depth_is_another_search(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    for depth in (20, 5, 20, 5):
        assert is_same(cached.retrieve(["subject 3"], depth), recorder.retrieve(["subject 3"], depth))
    assert len(recorder.asked) == 2 + 4  # two of them the cache's


def test_what_was_found_cannot_be_changed_by_whoever_got_it(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    first = cached.retrieve(["subject 3"], 5)
    first.rows[:] = 0
    first.scores[:] = 0
    assert is_same(cached.retrieve(["subject 3"], 5), recorder.retrieve(["subject 3"], 5))


def test_the_least_recently_asked_are_forgotten_first(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, 2000)  # two entries of 10 places
    for query in ("subject 1", "subject 2", "subject 1", "subject 3", "subject 1", "subject 2"):
        cached.retrieve([query], 10)
    assert recorder.asked == [["subject 1"], ["subject 2"], ["subject 3"], ["subject 2"]]


def test_memory_is_bounded(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, 20_000)
    cached.retrieve([f"subject {n}" for n in range(500)], 20)
    entries = cached._entries.values()
    assert 10 < len(entries) < 30
    assert cached._n_bytes <= 20_000
    assert all(part.base is None for hits in entries for part in hits)  # none is a view of the batch
    cached.retrieve([f"subject {n}" for n in range(500)], 20)
    assert cached._n_bytes <= 20_000


def test_a_cache_without_memory_is_refused(recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="max_bytes is 0"):
        CachedRetriever(recorder, 0)


def test_scoring_rows_again_goes_past_the_cache(recorder: Recorder) -> None:
    rows = [np.array([0, 7, 20])]
    (found,) = CachedRetriever(recorder, LARGE).rescore(["subject 7"], rows)
    assert found.tobytes() == recorder.rescore(["subject 7"], rows)[0].tobytes()


def test_many_threads_at_once(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, 10_000)  # so small that entries come and go
    rng = np.random.default_rng(0)
    batches = [[QUERIES[n] for n in rng.integers(0, len(QUERIES), 6)] for _ in range(200)]
    expected = recorder.retrieve(QUERIES, 20)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda batch: cached.retrieve(batch, 20), batches))
    for batch, hits in zip(batches, found, strict=True):
        lines = [QUERIES.index(query) for query in batch]
        assert is_same(hits, Hits(expected.rows[lines], expected.scores[lines]))
    assert cached.n_hits + cached.n_misses == 200 * 6
    assert cached._n_bytes <= 10_000


def test_a_searcher_with_a_cache_gives_the_same_answers(recorder: Recorder) -> None:
    plain, cached = open_searcher("made", "bm25"), open_searcher("made", "bm25", cache_bytes=LARGE)
    for _ in range(2):
        assert cached.search(QUERIES) == plain.search(QUERIES)


class Tuned(Recorder):
    """Finds other rows with another nprobe."""

    def __init__(self, retriever: Retriever) -> None:
        super().__init__(retriever)
        self.parameters = {"nprobe": SearchParam(8, 64)}

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        hits = super().retrieve(queries, depth)
        return Hits(hits.rows, hits.scores + np.float32(params.nprobe or self.parameters["nprobe"].default))


def test_what_was_found_with_other_parameters_is_something_else(recorder: Recorder) -> None:
    tuned = Tuned(recorder)
    cached, few, many = CachedRetriever(tuned, LARGE), SearchParams(nprobe=1), SearchParams(nprobe=64)
    assert cached.parameters == tuned.parameters
    for params in (DEFAULT_PARAMS, few, many):
        for _ in range(2):
            assert is_same(cached.retrieve(QUERIES[:3], 5, params), tuned.retrieve(QUERIES[:3], 5, params))
    assert (cached.n_hits, cached.n_misses) == (9, 9)
    assert CachedRetriever(recorder, LARGE).parameters == {}


def test_what_may_lack_rows_is_not_remembered(recorder: Recorder) -> None:
    cached = CachedRetriever(recorder, LARGE)
    with cancellation_scope(unsearched=set()):
        cached.retrieve(QUERIES[:2], 20)
    cached.retrieve(QUERIES[:2], 20)
    assert recorder.asked == [QUERIES[:2]] * 2

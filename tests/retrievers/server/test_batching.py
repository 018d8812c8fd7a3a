"""Batching and dropping of searches, and the thread that runs them."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.retrievers.made_rerankers import save_classifier
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Ranking, Rankings, Searcher
from wikidx.retrievers.cancellation import cancellation_scope, raise_if_cancelled
from wikidx.retrievers.errors import DeadlineExceeded
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import CrossEncoder
from wikidx.retrievers.server.batcher import Batcher, QueueMemory, SearchRequest, next_batch
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics

MADE = ("made", "bm25")


class HeldSearcher(Searcher):
    """Finds nothing, and refuses queries that are bad; the test holds its next search, which ends early if no client waits for it."""

    def __init__(self) -> None:
        self.is_busy, self.gate, self.was_stopped = threading.Event(), threading.Event(), threading.Event()

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> Rankings:
        self.is_busy.set()
        try:
            while not self.gate.wait(0.001):
                raise_if_cancelled()
        except DeadlineExceeded:
            self.was_stopped.set()
            raise
        return Rankings(Ranking(error=query if "bad" in query else "") for (query,) in groups)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that is not run: it makes futures."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


SEARCHER = HeldSearcher()


def make_search(loop: asyncio.AbstractEventLoop, deadline: float, n_queries: int = 1, k: int = 10) -> SearchRequest:
    return SearchRequest(MADE, SEARCHER, [["fox"]] * n_queries, SearchOptions(k=k), deadline, loop.create_future())


def test_late_or_cancelled_searches_are_dropped_and_equal_options_are_batched(loop: asyncio.AbstractEventLoop) -> None:
    late, gone, good, other, equal = (make_search(loop, *about) for about in ((0.95,), (9.0,), (9.0,), (9.0, 1, 3), (9.0,)))
    gone.answer.cancel()
    queue = deque([late, gone, good, other, equal])
    assert next_batch(queue, 256, now=1.0) == ([good, equal], [late, gone])
    assert list(queue) == [other]


def test_an_explained_search_has_a_batch_of_its_own(loop: asyncio.AbstractEventLoop) -> None:
    explained = [dataclasses.replace(make_search(loop, 9.0), options=SearchOptions(explain=True)) for _ in range(2)]
    assert next_batch(deque(explained), 256, now=1.0) == (explained[:1], [])


def test_a_batch_has_no_more_queries_than_allowed_but_one_request_may_have_more(loop: asyncio.AbstractEventLoop) -> None:
    small, large, last = (make_search(loop, 9.0, n_queries) for n_queries in (3, 6, 2))
    queue = deque([small, large, last])
    assert next_batch(queue, 5, now=1.0) == ([small, last], [])
    assert next_batch(queue, 5, now=1.0) == ([large], [])


class Held:
    """A batcher in the running event loop, whose searcher is held from the first search on."""

    def __init__(self) -> None:
        self.batcher, self.searcher = Batcher(Limits(), Metrics(), QueueMemory(1_000)), HeldSearcher()

    async def __aenter__(self) -> Held:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.searcher.gate.set()
        self.batcher.stop()

    def submit(self, *queries: str) -> asyncio.Future[Rankings]:
        answer: asyncio.Future[Rankings] = asyncio.get_running_loop().create_future()
        groups = [[query] for query in queries]
        self.batcher.submit(SearchRequest(MADE, self.searcher, groups, SearchOptions(), time.monotonic() + 30, answer))
        return answer

    async def submit_first(self, *queries: str) -> asyncio.Future[Rankings]:
        """Submit a search and wait until it runs."""
        answer = self.submit(*queries)
        await asyncio.to_thread(self.searcher.is_busy.wait, 30)
        return answer


def test_what_comes_meanwhile_is_answered_each_with_its_own_errors_at_their_positions() -> None:
    async def answers() -> list[Rankings]:
        async with Held() as held:
            first = await held.submit_first(*["fox"] * 10_000)
            together = [held.submit(*queries) for queries in (["good", "bad a"], ["bad b", "good", "good"], ["good"])]
            held.searcher.gate.set()
            return await asyncio.gather(first, *together)

    found = asyncio.run(answers())
    assert [len(rankings) for rankings in found] == [10_000, 2, 3, 1]
    assert [rankings.errors for rankings in found] == [{}, {1: "bad a"}, {0: "bad b"}, {}]


def test_a_search_that_nobody_waits_for_any_more_ends() -> None:
    async def second_answer() -> Rankings:
        async with Held() as held:
            first = await held.submit_first("fox")
            second = held.submit("fox")
            first.cancel()
            assert await asyncio.to_thread(held.searcher.was_stopped.wait, 30)
            held.searcher.gate.set()
            return await second

    assert asyncio.run(second_answer()) == [[]]


def test_a_cross_encoder_stops_between_its_batches(tmp_path: Path) -> None:
    encoder = CrossEncoder(RerankerSpec(name="made", checkpoint=save_classifier(tmp_path)))
    queries, passages = ["the river nile"] * 3000, [Passage("1", "Nile", "the river of the nile")] * 3000
    checks = itertools.count()
    with cancellation_scope(lambda: next(checks) >= 2), pytest.raises(DeadlineExceeded, match="nobody waits for it any more"):
        encoder.score(queries, passages)
    assert next(checks) == 3
    assert len(encoder.score(queries[:10], passages[:10])) == 10

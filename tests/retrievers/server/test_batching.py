"""Batching and dropping of searches, and the thread that runs them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from wikidx.retrievers.base import DEFAULTS, Ranking, Rankings, Searcher
from wikidx.retrievers.cancellation import raise_if_cancelled
from wikidx.retrievers.errors import DeadlineExceeded
from wikidx.retrievers.options import SearchOptions
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


def test_an_explained_search_has_a_batch_of_its_own(loop: asyncio.AbstractEventLoop) -> None:
    options, searcher = SearchOptions(explain=True), HeldSearcher()
    explained = [SearchRequest(MADE, searcher, [["fox"]], options, 9.0, loop.create_future()) for _ in range(2)]
    assert next_batch(deque(explained), 256, now=1.0) == (explained[:1], [])


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

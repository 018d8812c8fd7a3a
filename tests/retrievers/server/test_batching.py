"""Batching and dropping of searches, and the thread that runs them."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.retrievers.made_rerankers import save_classifier
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking, Rankings, Searcher
from wikidx.retrievers.cancellation import cancellation_scope, raise_if_cancelled
from wikidx.retrievers.errors import DeadlineExceeded
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.rerankers.checkpoint import RerankerSpec
from wikidx.retrievers.rerankers.cross_encoder import CrossEncoder
from wikidx.retrievers.server.batcher import Batcher, QueueMemory, SearchRequest, next_batch
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics

MADE = ("made", "bm25")
DEFAULTS = SearchOptions()


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that is not run: it makes futures."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


class EmptySearcher(Searcher):
    """A searcher that finds nothing."""

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        return [Ranking() for _ in groups]


EMPTY = EmptySearcher()


def make_search(loop: asyncio.AbstractEventLoop, deadline: float, n_queries: int = 1, k: int = 10) -> SearchRequest:
    return SearchRequest(MADE, EMPTY, [["fox"]] * n_queries, SearchOptions(k=k), deadline, loop.create_future())


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


class HeldSearcher(EmptySearcher):
    """A searcher whose next search the test releases; it ends early if no client waits for it."""

    def __init__(self) -> None:
        self.is_busy, self.gate, self.was_stopped = threading.Event(), threading.Event(), threading.Event()
        self.gate.set()

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        self.is_busy.set()
        try:
            while not self.gate.wait(0.001):
                raise_if_cancelled()
        except DeadlineExceeded:
            self.was_stopped.set()
            raise
        return super().search_groups(groups, options)


Submit = Callable[..., SearchRequest]


def run_in_batcher(body: Callable[[Submit, HeldSearcher], Awaitable[None]], searcher: HeldSearcher | None = None) -> None:
    """Run a test in an event loop with a batcher; its argument submits a search."""
    searcher = searcher or HeldSearcher()

    async def run() -> None:
        batcher = Batcher(Limits(), Metrics(), QueueMemory(1_000))

        def submit(n: int, queries: Sequence[str] = ("fox",)) -> SearchRequest:
            answer: asyncio.Future[Rankings] = asyncio.get_running_loop().create_future()
            groups = [[query] for query in queries] * n
            search = SearchRequest(MADE, searcher, groups, SearchOptions(), time.monotonic() + 30, answer)
            batcher.submit(search)
            return search

        try:
            await body(submit, searcher)
        finally:
            searcher.gate.set()
            batcher.stop()

    asyncio.run(run())


def test_small_searches_are_let_in_beside_a_large_one() -> None:
    async def body(submit: Submit, searcher: HeldSearcher) -> None:
        searcher.gate.clear()
        searcher.is_busy.clear()
        large = submit(10_000)
        await asyncio.to_thread(searcher.is_busy.wait, 30)
        small = [submit(1) for _ in range(3)]
        searcher.gate.set()
        assert [len(rankings) for rankings in await asyncio.gather(large.answer, *(search.answer for search in small))] == [10_000, 1, 1, 1]

    run_in_batcher(body)


def test_a_search_that_nobody_waits_for_any_more_ends() -> None:
    async def body(submit: Submit, searcher: HeldSearcher) -> None:
        searcher.gate.clear()
        first = submit(1)
        await asyncio.to_thread(searcher.is_busy.wait, 30)
        second = submit(1)
        first.answer.cancel()
        assert await asyncio.to_thread(searcher.was_stopped.wait, 30)
        searcher.gate.set()
        assert await second.answer == [[]]

    run_in_batcher(body)


class RefusingSearcher(HeldSearcher):
    """A held searcher that refuses some queries."""

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        super().search_groups(groups, options)
        return Rankings(Ranking(error=query if "bad" in query else "") for (query,) in groups)


def test_errors_come_back_to_their_request_at_their_position() -> None:
    async def body(submit: Submit, searcher: HeldSearcher) -> None:
        searcher.gate.clear()
        first = submit(1)
        await asyncio.to_thread(searcher.is_busy.wait, 30)
        together = [submit(1, queries) for queries in (["good", "bad a"], ["bad b", "good", "good"], ["good"])]
        searcher.gate.set()
        answers = await asyncio.gather(first.answer, *(search.answer for search in together))
        assert [answer.errors for answer in answers] == [{}, {1: "bad a"}, {0: "bad b"}, {}]

    run_in_batcher(body, RefusingSearcher())


def test_a_cross_encoder_stops_between_its_batches(tmp_path: Path) -> None:
    encoder = CrossEncoder(RerankerSpec(name="made", checkpoint=save_classifier(tmp_path)))
    queries, passages = ["the river nile"] * 3000, [Passage("1", "Nile", "the river of the nile")] * 3000
    checks = itertools.count()
    with cancellation_scope(lambda: next(checks) >= 2), pytest.raises(DeadlineExceeded, match="nobody waits for it any more"):
        encoder.score(queries, passages)
    assert next(checks) == 3
    assert len(encoder.score(queries[:10], passages[:10])) == 10

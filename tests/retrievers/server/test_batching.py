"""What is searched together and what is refused, by numbers and on a clock of the test's own; and the thread that does it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from corpora.passage import Passage
from retrievers.base import Ranking
from retrievers.cancellation import check_wanted, while_wanted
from retrievers.cross_encoder import CrossEncoder, CrossEncoderSpec
from retrievers.errors import DeadlineExceeded
from retrievers.options import SearchOptions
from retrievers.server.batcher import Batcher, Wanted
from retrievers.server.cost import Backlog, Cost, Kind
from retrievers.server.joining import Search, take
from retrievers.server.metrics import Metrics
from retrievers.server.settings import Limits
from tests.retrievers.test_cross_encoder import save_bert

MADE = ("made", "bm25")
DEFAULTS = SearchOptions()
FIXED_S, QUERY_S = 0.045, 0.002


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that is not run: it makes futures."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Found:
    """A searcher that finds nothing."""

    def search(self, queries: Sequence[str], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        return self.search_groups([[query] for query in queries], options)

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        return [[] for _ in groups]


NOTHING = Found()


def cost_of(seconds: Callable[[int], float], *sizes: int) -> Cost:
    """What is known after batches of some sizes."""
    cost = Cost()
    for size in sizes:
        cost = cost.after(size, seconds(size))
    return cost


def linear(n_queries: int) -> float:
    return FIXED_S + QUERY_S * n_queries


def search_of(loop: asyncio.AbstractEventLoop, kind: Kind, deadline: float, n_queries: int = 1, k: int = 10) -> Search:
    kind.n_given += n_queries
    return Search(MADE, NOTHING, [["fox"]] * n_queries, SearchOptions(k=k), n_queries, deadline, loop.create_future(), kind)


@pytest.mark.parametrize("sizes", [(1, 50), (50, 1), (1, 1, 1, 1000, 1, 1), (1000, *[1] * 60), (3, 200, 17, 64)])
def test_both_parts_of_a_cost_are_found(sizes: Sequence[int]) -> None:
    cost = cost_of(linear, *sizes)
    for n_queries in (1, 10, 1000):
        assert cost.seconds(n_queries) == pytest.approx(linear(n_queries), rel=1e-6)


def test_of_one_size_a_cost_tells_nothing_of_others() -> None:
    assert Cost().seconds(1000) == 0.0
    cost = cost_of(linear, *[1] * 15)
    assert cost.per_query is None
    assert cost.seconds(1000) == pytest.approx(linear(1))


def test_a_query_s_part_is_remembered_while_batches_are_of_one_size() -> None:
    assert cost_of(linear, 1000, *[1] * 5000).seconds(1000) == pytest.approx(linear(1000), rel=0.01)


def test_a_cost_follows_what_changes() -> None:
    cost = cost_of(linear, 1, 100, 1, 100)
    for _ in range(30):
        cost = cost.after(1, 3.0)
    assert cost.seconds(1) == pytest.approx(3.0, rel=0.01)


def test_no_part_of_a_cost_is_less_than_nothing() -> None:
    faster = Cost().after(1, 1.0).after(100, 0.5)
    assert faster.seconds(10_000) == faster.seconds(1) > 0
    steeper = Cost().after(10, 0.1).after(20, 10.0)
    assert steeper.seconds(1) >= 0


def test_the_wait_is_what_is_under_way_and_what_waits_in_batches() -> None:
    backlog = Backlog(100)
    kind, other = backlog.kind("a"), backlog.kind("b")
    kind.cost, other.cost = cost_of(linear, 1, 50), cost_of(lambda n: 2.0, 1, 50)
    kind.n_given, kind.n_begun, other.n_given, backlog.free_at = 251, 1, 3, 7.5
    waits = 2 * linear(100) + linear(50) + 2.0
    assert backlog.n_waiting == 253
    assert backlog.wait_s(7.0) == pytest.approx(0.5 + waits)
    assert backlog.wait_s(8.0) == pytest.approx(waits)
    most = 8.0 + 2 * (waits + 10 * QUERY_S)
    assert backlog.is_in_time(kind, 10, most + 0.001, 8.0)
    assert not backlog.is_in_time(kind, 10, most - 0.001, 8.0)


def test_where_nothing_waits_no_expectation_refuses() -> None:
    backlog = Backlog(100)
    kind = backlog.kind("a")
    kind.cost, backlog.free_at = cost_of(lambda n: 60.0, 1), 1000.0
    assert backlog.is_in_time(kind, 1, 0.1, 0.0)
    kind.n_given = 1
    assert not backlog.is_in_time(kind, 1, 0.1, 0.0)


def test_a_batch_ends_before_the_first_deadline_in_it(loop: asyncio.AbstractEventLoop) -> None:
    kind = Kind(cost_of(lambda n: 0.1 * n, 1, 8))
    waiting = deque(search_of(loop, kind, 2.0 + n / 1000) for n in range(60))
    batch, dropped = take(waiting, 256, now=1.0)
    assert (len(batch), len(waiting), dropped) == (8, 52, [])  # 1.25 times 0.8 s
    assert [search.deadline for search in batch] == [2.0 + n / 1000 for n in range(8)]


def test_what_would_be_late_by_itself_or_is_not_waited_for_is_dropped(loop: asyncio.AbstractEventLoop) -> None:
    kind = Kind(cost_of(lambda n: 0.1 * n, 1, 8))
    late, gone, good, other, joins = (search_of(loop, kind, *about) for about in ((1.05,), (9.0,), (9.0,), (9.0, 1, 3), (9.0,)))
    gone.answer.cancel()
    waiting = deque([late, gone, good, other, joins])
    assert take(waiting, 256, now=1.0) == ([good, joins], [late, gone])
    assert list(waiting) == [other]


def test_if_all_would_be_late_one_is_searched_all_the_same(loop: asyncio.AbstractEventLoop) -> None:
    kind = Kind(cost_of(lambda n: 60.0, 1))
    searches = [search_of(loop, kind, deadline) for deadline in (0.5, 9.0, 10.0, 8.0)]
    assert take(deque(searches), 256, now=1.0) == ([searches[2]], [searches[0], searches[1], searches[3]])
    assert take(deque([searches[0]]), 256, now=1.0) == ([], [searches[0]])


def test_few_are_joined_before_their_cost_is_known(loop: asyncio.AbstractEventLoop) -> None:
    kind = Kind()
    sizes = []
    for size in (1, 300, 300):
        sizes.append(len(take(deque(search_of(loop, kind, 1e9) for _ in range(size)), 256, now=0.0).batch))
        kind.cost = kind.cost.after(sizes[-1], linear(sizes[-1]))
    assert sizes == [1, 8, 256]


class Simulation:
    """Clients that each ask again when answered, or 0.2 s after a refusal, and one thread, on a clock that takes no time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stage: Callable[[int], float], n_clients: int, deadline_s: float) -> None:
        self._loop, self._stage, self._deadline_s = loop, stage, deadline_s
        self._backlog, self._waiting = Backlog(256), deque[Search]()
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._is_busy = False
        self.answered = Counter[str]()
        for client in range(n_clients):
            self._at(client / 1e4, self._ask)

    def run(self, seconds: float) -> Counter[str]:
        while self._events[0][0] < seconds:
            now, _, happen = heapq.heappop(self._events)
            happen(now)
            if self._waiting and not self._is_busy:
                self._begin(now)
        return self.answered

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _ask(self, now: float) -> None:
        kind = self._backlog.kind("a")
        if not self._backlog.is_in_time(kind, 1, now + self._deadline_s, now):
            self._at(now + 0.2, self._ask)
            self.answered["refused"] += 1
            return
        search = search_of(self._loop, kind, now + self._deadline_s)
        self._waiting.append(search)
        self._at(search.deadline, lambda now: self._answer([search], now, "late"))

    def _begin(self, now: float) -> None:
        batch, dropped = take(self._waiting, 256, now)
        kind = (batch or dropped)[0].kind
        kind.n_begun += len(batch) + len(dropped)
        self._answer(dropped, now, "late")
        if batch:
            seconds, self._is_busy = self._stage(len(batch)), True
            self._backlog.free_at = now + kind.cost.seconds(len(batch))
            self._at(now + seconds, lambda now: self._end(batch, now, seconds))

    def _end(self, batch: list[Search], now: float, seconds: float) -> None:
        self._is_busy = False
        batch[0].kind.cost = batch[0].kind.cost.after(len(batch), seconds)
        self._answer(batch, now, "good")

    def _answer(self, searches: list[Search], now: float, how: str) -> None:
        for search in searches:
            if not search.answer.done():
                search.answer.cancel()
                self.answered[how] += 1
                self._at(now, self._ask)


@pytest.mark.parametrize(
    ("fixed_s", "query_s", "n_clients", "deadline_s", "possible"),
    [
        (0.0, 0.1, 60, 2.0, 10.0),  # without a limit on a batch's time: 3 good answers a second, and 18 late ones
        (0.0, 0.03, 300, 3.0, 33.3),
        (0.045, 0.002, 300, 2.0, 460.0),
        (0.045, 0.002, 300, 0.3, 350.0),  # half of the time for a batch, half for the wait before
        (0.1, 0.0, 60, 2.0, 300.0),
    ],
)
def test_a_stage_is_never_busy_in_vain(
    loop: asyncio.AbstractEventLoop, fixed_s: float, query_s: float, n_clients: int, deadline_s: float, possible: float
) -> None:
    """Of the good answers a second that are possible, four fifths are given, however much more is asked."""
    found = Simulation(loop, lambda n: fixed_s + query_s * n, n_clients, deadline_s).run(30.0)
    assert found["good"] > 0.8 * 30 * possible
    assert found["late"] < 300


class Held(Found):
    """A searcher whose next search the test lets go; it ends early if nobody waits for it."""

    def __init__(self) -> None:
        self.is_busy, self.gate, self.was_stopped = threading.Event(), threading.Event(), threading.Event()
        self.gate.set()

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        self.is_busy.set()
        try:
            while not self.gate.wait(0.001):
                check_wanted()
        except DeadlineExceeded:
            self.was_stopped.set()
            raise
        return super().search_groups(groups, options)


Submit = Callable[[int], Search]


def in_a_batcher(body: Callable[[Submit, Held], Awaitable[None]]) -> None:
    """Run a test in a loop with a batcher; what it is given hands a search over."""

    async def run() -> None:
        batcher, searcher = Batcher(Limits(), Metrics(["made"], ["bm25"])), Held()

        def submit(n_queries: int) -> Search:
            return batcher.submit(MADE, searcher, Wanted([["fox"]] * n_queries, SearchOptions()), time.monotonic() + 30)

        try:
            await body(submit, searcher)
        finally:
            searcher.gate.set()
            batcher.stop()

    asyncio.run(run())


def test_small_searches_are_let_in_beside_a_large_one() -> None:
    async def body(submit: Submit, searcher: Held) -> None:
        for _ in range(15):
            searcher.gate.clear()
            held = submit(1)
            await asyncio.sleep(0.02)  # makes a search of one query take long
            searcher.gate.set()
            await held.answer
        searcher.gate.clear()
        searcher.is_busy.clear()
        large = submit(10_000)
        await asyncio.to_thread(searcher.is_busy.wait, 30)
        small = [submit(1) for _ in range(3)]
        searcher.gate.set()
        assert [len(rankings) for rankings in await asyncio.gather(large.answer, *(search.answer for search in small))] == [10_000, 1, 1, 1]

    in_a_batcher(body)


def test_a_search_that_nobody_waits_for_any_more_ends() -> None:
    async def body(submit: Submit, searcher: Held) -> None:
        searcher.gate.clear()
        first = submit(1)
        await asyncio.to_thread(searcher.is_busy.wait, 30)
        second = submit(1)
        first.answer.cancel()
        assert await asyncio.to_thread(searcher.was_stopped.wait, 30)
        searcher.gate.set()
        assert await second.answer == [[]]

    in_a_batcher(body)


def test_a_cross_encoder_stops_between_its_batches(tmp_path: Path) -> None:
    encoder = CrossEncoder(CrossEncoderSpec(name="made", checkpoint=save_bert(tmp_path)))
    queries, passages = ["the river nile"] * 3000, [Passage("1", "Nile", "the river of the nile")] * 3000
    asked = itertools.count()
    with while_wanted(lambda: next(asked) < 2), pytest.raises(DeadlineExceeded, match="nobody waits for it any more"):
        encoder.score(queries, passages)
    assert next(asked) == 3
    assert len(encoder.score(queries[:10], passages[:10])) == 10

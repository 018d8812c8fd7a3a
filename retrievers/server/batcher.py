"""Joins waiting searches: a thread that starts with the first at once, and takes together what came in while it was busy.

What joins has the same searcher and equal options; the oldest goes first. The event loop hands searches over and gets the rankings back.
A batch is no larger than lets each of its searches be answered in time, as far as those before it tell, and what can no longer be answered
in time is refused or dropped: a result that comes too late would cost those behind it theirs. An encoder, a vector index or a GPU belongs
to one such thread; ``catalog`` says which.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import chain
from queue import SimpleQueue
from typing import NamedTuple

from corpora.errors import IdxError
from retrievers.base import NotSearched, PartialSearcher, Ranking, Searcher
from retrievers.cancellation import while_wanted
from retrievers.errors import DeadlineExceeded, Overloaded, ShardUnavailable
from retrievers.options import SearchOptions

from .cost import Backlog
from .joining import Groups, Search, Taken, take
from .metrics import Metrics
from .settings import Limits

_LOG = logging.getLogger("idx.server")

Outcome = list[Ranking] | Exception
Name = tuple[str, str]  # corpus, retriever


class Wanted(NamedTuple):
    """What is searched for, how, and what takes the rows that were not searched (None: all have to be)."""

    groups: Groups
    options: SearchOptions
    lost: set[NotSearched] | None = None


class Batcher:
    """A thread that searches; all methods belong to the event loop it was made in."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[Search | None] = SimpleQueue()
        self._n_queries = self._n_requests = 0  # waiting or under way
        self._backlog = Backlog(limits.joined)
        self._thread = threading.Thread(target=self._work, name="search", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether as much is waiting as may; of what is under way no more counts than a batch, that a large request shuts nobody out."""
        n_waiting = self._backlog.n_waiting
        n_queries = n_waiting + min(self._n_queries - n_waiting, self._limits.joined)
        return n_queries >= self._limits.waiting or self._n_requests >= self._limits.requests

    def overload(self) -> Overloaded:
        """Return the error for a search that there is no room for."""
        return Overloaded(
            f"{self._n_queries:,} queries are waiting: ask again in a while, or ask another server",
            retry_after=max(1, math.ceil(self._backlog.wait_s(time.monotonic()))),
        )

    def submit(self, name: Name, searcher: Searcher, asked: Wanted, deadline: float) -> Search:
        """Hand a search over.

        Raises:
            Overloaded: so much is waiting that it would not come to this one in time.
        """
        groups, options, lost = asked
        kind = self._backlog.kind((*name, options.rerank))
        n_queries = sum(map(len, groups))
        if self.is_full or not self._backlog.is_in_time(kind, n_queries, deadline, time.monotonic()):
            raise self.overload()
        search = Search(name, searcher, groups, options, n_queries, deadline, self._loop.create_future(), kind, lost)
        kind.n_given += n_queries
        self._n_queries += n_queries
        self._n_requests += 1
        self._metrics.queue.add(*name, value=n_queries)
        self._incoming.put(search)
        return search

    def stop(self) -> None:
        """End the thread when it has searched for all that it was given."""
        self._incoming.put(None)
        self._thread.join()

    def _work(self) -> None:
        """Search until told to stop; runs in the thread."""
        waiting = deque[Search]()
        is_stopped = False
        while waiting or not is_stopped:
            while not is_stopped and not (waiting and self._incoming.empty()):
                found = self._incoming.get()
                if found is None:
                    is_stopped = True
                else:
                    waiting.append(found)
            if waiting:
                self._search(take(waiting, self._limits.joined, time.monotonic()))

    def _search(self, taken: Taken) -> None:
        """Search for a batch, and hand the outcomes to the event loop."""
        batch, dropped = taken
        if dropped:
            self._loop.call_soon_threadsafe(self._drop, dropped)
        for search in chain(batch, dropped):
            search.kind.n_begun += search.n_queries
        if not batch:
            return
        kind, n_queries = batch[0].kind, sum(search.n_queries for search in batch)
        started = time.monotonic()
        self._backlog.free_at = started + kind.cost.seconds(n_queries)
        with while_wanted(lambda: not all(search.answer.cancelled() for search in batch), min(search.deadline for search in batch)):
            outcomes = _outcomes(batch)
        seconds = time.monotonic() - started
        kind.cost = kind.cost.after(n_queries, seconds)
        self._loop.call_soon_threadsafe(self._deliver, batch, outcomes, seconds)

    def _drop(self, searches: Sequence[Search]) -> None:
        for search in searches:
            self._finish(search, DeadlineExceeded("the answer would come too late: too much is waiting"))
            self._metrics.dropped.add()

    def _deliver(self, searches: Sequence[Search], outcomes: Sequence[Outcome], seconds: float) -> None:
        name = searches[0].name
        self._metrics.batch_queries.observe(*name, value=sum(search.n_queries for search in searches))
        self._metrics.search_seconds.observe(*name, value=seconds)
        for search, outcome in zip(searches, outcomes, strict=True):
            self._finish(search, outcome)

    def _finish(self, search: Search, outcome: Outcome) -> None:
        self._n_queries -= search.n_queries
        self._n_requests -= 1
        self._metrics.queue.add(*search.name, value=-search.n_queries)
        if search.answer.done():
            return
        if isinstance(outcome, Exception):
            search.answer.set_exception(outcome)
        else:
            search.answer.set_result(outcome)


def _outcomes(searches: Sequence[Search]) -> list[Outcome]:
    """Search for all at once; if that fails, for one after the other, so that each fails for itself only."""
    first = searches[0]
    try:
        rankings = _rankings(searches)
    except Exception as error:  # whatever a search raises is its request's answer: the thread has to live
        if isinstance(error, DeadlineExceeded | ShardUnavailable):  # which the others would meet, too, and wait for as long
            return [error] * len(searches)
        if len(searches) > 1:
            return [outcome for search in searches for outcome in _outcomes([search])]
        if not isinstance(error, IdxError):
            _LOG.exception("a search failed: %s", first.name)
        return [error]
    found = iter(rankings)
    return [[next(found) for _ in search.groups] for search in searches]


def _rankings(searches: Sequence[Search]) -> list[Ranking]:
    """Search for all at once."""
    first, groups = searches[0], [group for search in searches for group in search.groups]
    if first.lost is None or not isinstance(first.searcher, PartialSearcher):
        return first.searcher.search_groups(groups, first.options)
    rankings, not_searched = first.searcher.search_partial(groups, first.options)
    for search in searches:
        if search.lost is not None:
            search.lost.update(not_searched)
    return rankings

"""Joins waiting searches: a thread that starts with the first at once, and takes together what came in while it was busy.

What joins has the same searcher and equal options; the oldest goes first. The event loop hands searches over and gets the rankings back.
An encoder, a vector index or a GPU belongs to one such thread; ``catalog`` says which.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from wikidx.corpora.errors import IdxError
from wikidx.retrievers.base import NotSearched, Ranking, Searcher
from wikidx.retrievers.cancellation import while_wanted
from wikidx.retrievers.errors import DeadlineExceeded, Overloaded, SearchFailed, ShardUnavailable
from wikidx.retrievers.options import SearchOptions

from .limits import Limits
from .metrics import Metrics

_LOG = logging.getLogger("idx.server")
_RETRY_AFTER_S = 1.0

Outcome = list[Ranking] | Exception
Groups = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One request's search.

    Attributes:
        name: corpus and retriever.
        searcher: searches.
        groups: of queries.
        options: of the search.
        deadline: on the clock of ``time.monotonic``.
        answer: the rankings; cancelled if nobody waits for them.
        lost: takes the rows that were not searched, before the answer is there; None: all have to be.
    """

    name: tuple[str, str]
    searcher: Searcher
    groups: Groups
    options: SearchOptions
    deadline: float
    answer: asyncio.Future[list[Ranking]]
    lost: set[NotSearched] | None = None

    @property
    def n_queries(self) -> int:
        """Number of queries in all groups."""
        return sum(map(len, self.groups))

    def joins(self, other: Search) -> bool:
        """Return whether the two can be one search."""
        return self.searcher is other.searcher and self.options == other.options and (self.lost is None) == (other.lost is None)


def take(waiting: deque[Search], joined: int, now: float) -> tuple[list[Search], list[Search]]:
    """Take the oldest search that is still of use, and what can be joined with it, to be searched; and what nobody waits for any more.

    Args:
        waiting: the oldest first; what is taken is removed.
        joined: queries that are searched at once, if they came in several requests.
        now: on the clock of the deadlines.
    """
    batch, dropped, left = list[Search](), list[Search](), list[Search]()
    n_queries = 0
    while waiting and n_queries < joined:
        search = waiting.popleft()
        if search.answer.cancelled() or search.deadline <= now:
            dropped.append(search)
        elif not batch or (search.joins(batch[0]) and n_queries + search.n_queries <= joined):
            batch.append(search)
            n_queries += search.n_queries
        else:
            left.append(search)
    waiting.extendleft(reversed(left))
    return batch, dropped


class Batcher:
    """A thread that searches; all methods belong to the event loop it was made in."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[Search | None] = SimpleQueue()
        self._n_requests = 0  # waiting or under way
        self._n_given = 0  # queries that were ever handed over, counted here, ...
        self._n_taken = 0  # ... and that no longer wait, counted by the thread
        self._thread = threading.Thread(target=self._work, name="search", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """True if the queue is full."""
        return self._n_given - self._n_taken >= self._limits.waiting or self._n_requests >= self._limits.requests

    def overload(self) -> Overloaded:
        """Return the error for a search that there is no room for."""
        n_waiting = self._n_given - self._n_taken
        return Overloaded(f"{n_waiting:,} queries are waiting: ask again in a while, or ask another server", retry_after=_RETRY_AFTER_S)

    def submit(self, search: Search) -> None:
        """Hand a search over.

        Raises:
            Overloaded: too much is waiting.
        """
        if self.is_full:
            raise self.overload()
        self._n_given += search.n_queries
        self._n_requests += 1
        self._metrics.queue.labels(*search.name).inc(search.n_queries)
        self._incoming.put(search)

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
                self._search(*take(waiting, self._limits.joined, time.monotonic()))

    def _search(self, batch: list[Search], dropped: list[Search]) -> None:
        """Search for a batch, and hand the outcomes to the event loop."""
        self._n_taken += sum(search.n_queries for search in (*batch, *dropped))
        if dropped:
            self._loop.call_soon_threadsafe(self._drop, dropped)
        if not batch:
            return
        started = time.monotonic()
        lost = None if batch[0].lost is None else set[NotSearched]()
        deadline = min(search.deadline for search in batch)
        with while_wanted(lambda: not all(search.answer.cancelled() for search in batch), deadline, lost):
            outcomes = _outcomes(batch)
        for search in batch:
            if search.lost is not None:
                search.lost.update(lost or ())
        self._loop.call_soon_threadsafe(self._deliver, batch, outcomes, time.monotonic() - started)

    def _drop(self, searches: Sequence[Search]) -> None:
        for search in searches:
            self._finish(search, DeadlineExceeded("the answer would come too late: too much is waiting"))
            self._metrics.dropped.inc()

    def _deliver(self, searches: Sequence[Search], outcomes: Sequence[Outcome], seconds: float) -> None:
        name = searches[0].name
        self._metrics.batch_queries.labels(*name).observe(sum(search.n_queries for search in searches))
        self._metrics.search_seconds.labels(*name).observe(seconds)
        for search, outcome in zip(searches, outcomes, strict=True):
            self._finish(search, outcome)

    def _finish(self, search: Search, outcome: Outcome) -> None:
        self._n_requests -= 1
        self._metrics.queue.labels(*search.name).dec(search.n_queries)
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
        found = iter(first.searcher.search_groups([group for search in searches for group in search.groups], first.options))
    except Exception as error:  # whatever a search raises is its request's answer: the thread has to live
        if isinstance(error, DeadlineExceeded | ShardUnavailable):  # which the others would meet, too, and wait for as long
            return [error] * len(searches)
        if len(searches) > 1:
            return [outcome for search in searches for outcome in _outcomes([search])]
        if isinstance(error, IdxError):
            return [error]
        _LOG.exception("a search failed: %s", first.name)
        return [SearchFailed("the search failed: the server's log says why")]
    return [[next(found) for _ in search.groups] for search in searches]

"""Dynamic batching: a thread starts with the first search at once, and batches those that arrive while it is busy.

Searches in a batch have the same searcher and equal options; the oldest goes first. The event loop submits searches and receives the
rankings. An encoder, a vector index or a GPU belongs to one such thread; ``catalog`` assigns them.
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
        searcher: the searcher.
        groups: of queries.
        options: of the search.
        deadline: on the clock of ``time.monotonic``.
        answer: the rankings; cancelled if the client is gone.
        lost: receives the rows that were not searched, before the answer is set; None: all must be searched.
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
        """Return whether the two can be batched."""
        return self.searcher is other.searcher and self.options == other.options and (self.lost is None) == (other.lost is None)


def take(waiting: deque[Search], joined: int, now: float) -> tuple[list[Search], list[Search]]:
    """Take the next batch, the oldest live search and those that can be batched with it, and the expired or cancelled searches.

    Args:
        waiting: the oldest first; taken searches are removed.
        joined: maximum number of queries in a batch of several requests.
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
    """A thread that searches; all methods belong to the event loop that created it."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[Search | None] = SimpleQueue()
        self._n_requests = 0  # waiting or running
        self._n_given = 0  # queries submitted so far, counted here, ...
        self._n_taken = 0  # ... and queries taken from the queue, counted by the thread
        self._thread = threading.Thread(target=self._work, name="search", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """True if the queue is full."""
        return self._n_given - self._n_taken >= self._limits.waiting or self._n_requests >= self._limits.requests

    def overload(self) -> Overloaded:
        """Return the error for a search that is refused because the queue is full."""
        n_waiting = self._n_given - self._n_taken
        return Overloaded(f"{n_waiting:,} queries are waiting: ask again in a while, or ask another server", retry_after=_RETRY_AFTER_S)

    def submit(self, search: Search) -> None:
        """Submit a search.

        Raises:
            Overloaded: the queue is full.
        """
        if self.is_full:
            raise self.overload()
        self._n_given += search.n_queries
        self._n_requests += 1
        self._metrics.queue.labels(*search.name).inc(search.n_queries)
        self._incoming.put(search)

    def stop(self) -> None:
        """End the thread when all submitted searches are done."""
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
        """Search for a batch, and pass the outcomes to the event loop."""
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
    """Search for the whole batch; if that fails, search for each request alone, so that each gets only its own error."""
    first = searches[0]
    try:
        found = iter(first.searcher.search_groups([group for search in searches for group in search.groups], first.options))
    except Exception as error:  # every exception of a search is its request's answer: the thread must survive
        if isinstance(error, DeadlineExceeded | ShardUnavailable):  # the others would wait as long for the same error
            return [error] * len(searches)
        if len(searches) > 1:
            return [outcome for search in searches for outcome in _outcomes([search])]
        if isinstance(error, IdxError):
            return [error]
        _LOG.exception("a search failed: %s", first.name)
        return [SearchFailed("the search failed: the server's log says why")]
    return [[next(found) for _ in search.groups] for search in searches]

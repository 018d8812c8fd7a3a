"""Dynamic batching: a thread starts the first search immediately, and batches the searches that arrive while it is busy.

The searches of a batch have the same searcher and equal options, and either all or none of them may skip unavailable rows. The oldest
waiting search is the first of the next batch. The event loop submits searches and receives rankings. ``catalog`` assigns retrievers to
threads, which share a ``QueueMemory``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from queue import SimpleQueue
from typing import Any, Protocol

from wikidx.base.errors import IdxError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.progress import format_bytes
from wikidx.indexer.scope import Scope
from wikidx.retrievers.base import UnsearchedRows
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.errors import DeadlineExceeded, Overloaded, SearchFailed, ShardUnavailable
from wikidx.retrievers.options import SearchOptions

from .limits import Limits
from .metrics import Metrics

_LOG = logging.getLogger("idx.server")
RETRY_AFTER_S = 1.0

Groups = Sequence[Sequence[str]]
Outcome = Sequence[Any] | Exception


class GroupSearcher(Protocol):
    """A searcher, whose results are rankings, or an encoder, whose results are vectors."""

    def search_groups(self, groups: Groups, options: SearchOptions) -> Sequence[Any]:
        """Return one result for each group."""
        ...


class QueueMemory:
    """Memory of the requests that wait or are being searched, counted as the bytes of their bodies; used by the event loop only.

    Args:
        max_bytes: the limit. A request that comes alone may exceed it.

    Attributes:
        n_bytes: bytes that are counted now.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.n_bytes = max_bytes, 0

    def reserve(self, n_bytes: int) -> None:
        """Count a request.

        Raises:
            Overloaded: there is no room.
        """
        if error := self.overload_error(n_bytes):
            raise error
        self.n_bytes += n_bytes

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Count a request within the context; raises as ``reserve`` does."""
        self.reserve(n_bytes)
        try:
            yield
        finally:
            self.n_bytes -= n_bytes

    def overload_error(self, n_bytes: int) -> Overloaded | None:
        """Return the error for a request for which there is no room; None if there is room."""
        if not self.n_bytes or self.n_bytes + n_bytes <= self._max_bytes:
            return None
        waiting = f"requests of {format_bytes(self.n_bytes)} are waiting, {format_bytes(self._max_bytes)} are allowed (--queue-memory)"
        return Overloaded(f"{waiting}: ask again in a while, or ask another server", retry_after=RETRY_AFTER_S)


@dataclass(slots=True, eq=False)
class SearchRequest:
    """The search of one request.

    Attributes:
        name: corpus and retriever.
        searcher: the searcher.
        groups: groups of queries.
        options: the search options.
        deadline: time on the clock of ``time.monotonic``.
        answer: future of the results, one for each group; cancelled when no client waits for them.
        unsearched: a set that receives the unsearched rows before ``answer`` is resolved; None: all rows must be searched.
        n_bytes: bytes in the body of the request.
        scope: the rows that may be returned; None: all.
        has_begun: whether it has been taken from the queue.
    """

    name: tuple[str, str]
    searcher: GroupSearcher
    groups: Groups
    options: SearchOptions
    deadline: float
    answer: asyncio.Future[Any]
    unsearched: set[UnsearchedRows] | None = None
    n_bytes: int = 0
    scope: Scope | None = None
    has_begun: bool = False

    @property
    def n_queries(self) -> int:
        """Number of queries in all groups."""
        return sum(map(len, self.groups))

    def can_batch_with(self, other: SearchRequest) -> bool:
        """Return whether both searches can share a batch; the stages of an explained search are its own."""
        is_equal = self.searcher is other.searcher and self.options == other.options and not self.options.explain
        return is_equal and self.scope == other.scope and (self.unsearched is None) == (other.unsearched is None)


def next_batch(queue: deque[SearchRequest], max_queries: int, now: float) -> tuple[list[SearchRequest], list[SearchRequest]]:
    """Remove the next batch from the queue, and return it with the expired or cancelled searches.

    The batch consists of the oldest live search, and of searches that can share a batch with it.

    Args:
        queue: searches, oldest first; the returned searches are removed.
        max_queries: maximum number of queries in a batch of several requests.
        now: time on the clock of the deadlines.
    """
    batch, dropped, rest = list[SearchRequest](), list[SearchRequest](), list[SearchRequest]()
    n_queries = 0
    while queue and n_queries < max_queries:
        search = queue.popleft()
        if search.answer.cancelled() or search.deadline <= now:
            dropped.append(search)
        elif not batch or (search.can_batch_with(batch[0]) and n_queries + search.n_queries <= max_queries):
            batch.append(search)
            n_queries += search.n_queries
        else:
            rest.append(search)
    queue.extendleft(reversed(rest))
    return batch, dropped


class Batcher:
    """A thread that searches; its public methods must be called in the event loop that created it.

    Attributes:
        device_lost: error of a GPU after which all searches fail; None: no such error.
    """

    def __init__(self, limits: Limits, metrics: Metrics, memory: QueueMemory) -> None:
        self._limits, self._metrics, self._memory = limits, metrics, memory
        self._loop = asyncio.get_running_loop()
        self._incoming: SimpleQueue[SearchRequest | None] = SimpleQueue()
        self.device_lost: DeviceLost | None = None
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self._thread.start()

    def submit(self, search: SearchRequest) -> None:
        """Submit a search.

        Raises:
            Overloaded: there is no room.
        """
        self._memory.reserve(search.n_bytes)
        self._metrics.queue.labels(*search.name).inc(search.n_queries)
        self._incoming.put(search)

    def stop(self) -> None:
        """Wait until all submitted searches are done, and end the thread."""
        self._incoming.put(None)
        self._thread.join()

    def _run(self) -> None:
        """Search until ``stop`` is called; runs in the thread."""
        queue = deque[SearchRequest]()
        is_stopped = False
        while queue or not is_stopped:
            while not is_stopped and not (queue and self._incoming.empty()):
                search = self._incoming.get()
                if search is None:
                    is_stopped = True
                else:
                    queue.append(search)
            if queue:
                self._search(*next_batch(queue, self._limits.max_batch_queries, time.monotonic()))

    def _search(self, batch: list[SearchRequest], dropped: list[SearchRequest]) -> None:
        """Run the searches of a batch, and pass their outcomes to the event loop."""
        for search in batch:
            search.has_begun = True
        if dropped:
            self._loop.call_soon_threadsafe(self._drop, dropped)
        if not batch:
            return
        started = time.monotonic()
        unsearched = None if batch[0].unsearched is None else set[UnsearchedRows]()
        deadline = min(search.deadline for search in batch)
        with cancellation_scope(lambda: all(search.answer.cancelled() for search in batch), deadline, unsearched):
            outcomes = _search_batch(batch)
        self.device_lost = next((outcome for outcome in outcomes if isinstance(outcome, DeviceLost)), self.device_lost)
        for search in batch:
            if search.unsearched is not None:
                search.unsearched.update(unsearched or ())
        self._loop.call_soon_threadsafe(self._deliver, batch, outcomes, time.monotonic() - started)

    def _drop(self, searches: Sequence[SearchRequest]) -> None:
        for search in searches:
            self._finish(search, DeadlineExceeded("the answer would come too late: too much is waiting"))
            self._metrics.dropped.inc()

    def _deliver(self, searches: Sequence[SearchRequest], outcomes: Sequence[Outcome], seconds: float) -> None:
        name = searches[0].name
        self._metrics.batch_queries.labels(*name).observe(sum(search.n_queries for search in searches))
        self._metrics.search_seconds.labels(*name).observe(seconds)
        for search, outcome in zip(searches, outcomes, strict=True):
            self._finish(search, outcome)

    def _finish(self, search: SearchRequest, outcome: Outcome) -> None:
        self._memory.n_bytes -= search.n_bytes
        self._metrics.queue.labels(*search.name).dec(search.n_queries)
        if search.answer.done():
            return
        if isinstance(outcome, Exception):
            search.answer.set_exception(outcome)
        else:
            search.answer.set_result(outcome)


def _search_batch(searches: Sequence[SearchRequest]) -> list[Outcome]:
    """Run a batch as one search. If it fails, run each request alone, so that it gets only its own error.

    A missed deadline, an unavailable shard or a lost GPU fails the whole batch.
    """
    first = searches[0]
    rows: dict[str, Any] = {} if first.scope is None else {"rows": first.scope}
    try:
        found = first.searcher.search_groups([group for search in searches for group in search.groups], first.options, **rows)
    except Exception as error:  # the thread must survive: an exception becomes the outcome of its requests
        # Each request alone would wait as long for the same error.
        if isinstance(error, DeadlineExceeded | ShardUnavailable | DeviceLost):
            return [error] * len(searches)
        if len(searches) > 1:
            return [outcome for search in searches for outcome in _search_batch([search])]
        if isinstance(error, IdxError):
            return [error]
        _LOG.exception("a search failed: %s", first.name)
        return [SearchFailed("the search failed: the server's log says why")]
    ends = accumulate(len(search.groups) for search in searches)
    return [found[end - len(search.groups) : end] if len(searches) > 1 else found for search, end in zip(searches, ends, strict=True)]

"""Dispatch of the requests of methods to the services of a run: models, searcher and title lookup.

Each service has a ``Queue``. An endpoint answers calls one by one, as many at a time as it takes; every other service answers in batches,
one batch at a time: what is requested meanwhile is the next batch. A batch of searches becomes one ``search_groups`` call for each distinct
set of search options. Equal requests are served once, unless they sample without a seed. A text that repeats itself until the token limit
is cut after the first time (``repetition``).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.net.request_threads import RequestThreads
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.errors import Unreachable
from wikidx.runtimes.execution.results import Outcome
from wikidx.runtimes.llms.base import LLM, Call, Reply
from wikidx.runtimes.llms.cache import is_repeatable
from wikidx.runtimes.llms.repetition import cut_loop
from wikidx.runtimes.methods.requests import Compare, LookUpTitle, Request, Result, Retrieve, Truncate

_MAX_RECENT = 20_000  # results kept for reuse: those of a few thousand questions, about 100 MB

_QUIET_TURNS = 16  # of the event loop, so many as a result takes through nested branches to the next request, or to the next question

_COMPARED = {
    kind: attrgetter(*(field.name for field in dataclasses.fields(kind) if field.compare and field.name != "role"))
    for kind in get_args(Call)
}
"""Kind of call -> its values that equal calls share; one model may have several roles."""

Similarity = Callable[[Sequence[tuple[str, tuple[str, ...]]], str], Sequence[tuple[float, ...]]]
"""Function: (texts, each with others; name of an encoder) -> for each text its cosine with each of its others."""

TitleLookup = Callable[[str], Sequence[Passage]]
"""Function: title -> passages with this title, in corpus order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Models and searcher that serve requests.

    Attributes:
        llms: models by role; one model may have several roles.
        searcher: searcher for ``Retrieve``; None: these requests fail.
        look_up_title: lookup for ``LookUpTitle``; None: these requests fail.
        similarity: comparison of texts for ``Compare``; None: these requests fail.
        search: default search options; a request's own options override them.
    """

    llms: Mapping[str, LLM]
    searcher: Searcher | None = None
    look_up_title: TitleLookup | None = None
    similarity: Similarity | None = None
    search: SearchOptions = SearchOptions()


Served = Reply | Result | IdxError
"""The answer of a service to a request: a model's reply, the result of another service, or an error."""

Deliver = Callable[[Mapping[int, Served]], None]
"""Function that receives answers to requests of a batch, by the number of the request; only the first of each request counts."""

Serve = Callable[[list[Any], Deliver], None]
"""Function that serves a batch of requests. An ``IdxError`` is the outcome of all requests without another."""

End = Callable[[BaseException], None]
"""Function that ends the run with an exception."""


class Answered(NamedTuple):
    """The outcome of a request, and its error for the method."""

    outcome: Outcome
    error: IdxError | None = None

    def reused(self) -> Answered:
        """Return the outcome for another request that is equal."""
        return self._replace(outcome=dataclasses.replace(self.outcome, is_reused=True))


class Dispatcher:
    """A service of requests by models and searcher, each in threads of its own; must be closed. For use in one event loop.

    Args:
        services: models and searcher.
        end: called with an exception after which nothing more can be answered.
    """

    def __init__(self, services: Services, end: End) -> None:
        self._services, self._end = services, end
        self._queues: dict[Hashable, Queue] = {}
        self._recent: OrderedDict[Hashable, Answered] = OrderedDict()
        self._waiting: dict[Hashable, list[asyncio.Future[Answered]]] = {}  # key of an open request -> those who wait for it
        self._n_asked, self._is_closed = 0, False
        self._services_of: dict[type, Serve] = {Retrieve: self._search, LookUpTitle: self._look_up, Compare: self._compare}

    async def ask(self, request: Request) -> Answered:
        """Return the outcome of a request to a model or to the searcher.

        Raises:
            UnknownNameError: a role has no model.
            CancelledError: the dispatcher is closed; a method sends requests in its clean-up.
        """
        if self._is_closed:
            raise asyncio.CancelledError
        key = self._key(request)
        self._n_asked += 1
        if key in self._recent:
            self._recent.move_to_end(key)
            return self._recent[key].reused()
        answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        if key in self._waiting:
            self._waiting[key].append(answered)
        else:
            self._queue_for(request).add(request, partial(self._settle, key))
            self._waiting[key] = [answered]
        return await answered

    def serve_immediately(self, request: Request) -> Outcome:
        """Serve a request that waits for nothing: a note or a truncation."""
        if not isinstance(request, Truncate):
            return Outcome()
        return Outcome(result=self._llm(request.role).truncate(request.text, request.max_tokens, keep=request.keep))

    def close(self) -> None:
        """Stop the threads after their current calls; return immediately."""
        self._is_closed = True
        for queue in self._queues.values():
            queue.close()

    def _settle(self, key: Hashable, answered: Answered) -> None:
        """Hand the outcome of a request to those who still wait for it, and keep it for reuse."""
        if answered.error is None and type(key) is not object:
            self._recent[key] = answered
            if len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)
        for number, future in enumerate(self._waiting.pop(key)):
            if not future.done():
                future.set_result(answered.reused() if number else answered)

    async def _quiet(self) -> None:
        """Wait until no request has come for some turns of the event loop: then all questions wait for services."""
        n_before = -1
        while n_before != self._n_asked:
            n_before = self._n_asked
            for _ in range(_QUIET_TURNS):
                await asyncio.sleep(0)

    def _key(self, request: Request) -> Hashable:
        """Return the key that equal requests share; a request whose result must not be reused has an object of its own."""
        if not isinstance(request, Call):
            return request
        return (id(self._llm(request.role)), type(request), _COMPARED[type(request)](request)) if is_repeatable(request) else object()

    def _llm(self, role: str) -> LLM:
        if role not in self._services.llms:
            raise unknown_name_error("role", role, self._services.llms)
        return self._services.llms[role]

    def _queue_for(self, request: Request) -> Queue:
        llm = self._llm(request.role) if isinstance(request, Call) else None
        key: Hashable = type(request).__name__ if llm is None else id(llm)
        if key not in self._queues:
            serve: Serve = partial(_ask, llm) if llm else self._services_of[type(request)]
            self._queues[key] = Queue(serve, llm.capabilities.concurrency if llm else None, self._quiet, self._end)
        return self._queues[key]

    def _search(self, requests: list[Retrieve], deliver: Deliver) -> None:
        if self._services.searcher is None:
            raise InputError("the method searches, and there is nothing to search: add --corpus, --preset or --url")
        run, groups = self._services.search, dict[SearchOptions, list[int]]()
        for number, request in enumerate(requests):
            options = dataclasses.replace(run, k=request.k, merge=request.merge or run.merge, dedup=request.dedup or run.dedup)
            groups.setdefault(options, []).append(number)
        for options, numbers in groups.items():
            found = _search(self._services.searcher, [list(requests[number].queries) for number in numbers], options)
            deliver(dict(zip(numbers, found, strict=True)))

    def _look_up(self, requests: list[LookUpTitle], deliver: Deliver) -> None:
        if self._services.look_up_title is None:
            raise InputError("the method looks titles up, which needs a corpus on this machine")
        deliver({n: tuple(self._services.look_up_title(request.title)) for n, request in enumerate(requests)})

    def _compare(self, requests: list[Compare], deliver: Deliver) -> None:
        if self._services.similarity is None:
            raise InputError("the method compares texts, and there is no encoder")
        for encoder in dict.fromkeys(request.encoder for request in requests):
            numbers = [number for number, request in enumerate(requests) if request.encoder == encoder]
            pairs = [(requests[number].text, requests[number].others) for number in numbers]
            try:
                deliver(dict(zip(numbers, self._services.similarity(pairs, encoder), strict=True)))
            except DeviceLost:
                raise
            except IdxError as error:
                deliver(dict.fromkeys(numbers, error))


class _Ticket(NamedTuple):
    request: Request
    settle: Callable[[Answered], None]


class Queue:
    """Requests that wait for one service, and the threads that serve them.

    Threads take what waits by themselves: they work while the event loop's thread is at something else.

    Args:
        serve: the service.
        concurrency: number of requests that are served at a time, one by one; None: a batch of all that wait, one batch at a time.
        quiet: function that waits until a batch is worth while.
        end: called with an exception that is no ``IdxError``, or says that a device is lost.
    """

    def __init__(self, serve: Serve, concurrency: int | None, quiet: Callable[[], Awaitable[None]], end: End) -> None:
        self._serve, self._is_batched, self._quiet, self._end = serve, concurrency is None, quiet, end
        self._pool = RequestThreads(concurrency, "service") if concurrency else ThreadPoolExecutor(1, "service")
        self._loop = asyncio.get_running_loop()
        self._added: list[_Ticket] = []
        self._waiting: deque[_Ticket] = deque()
        self._batches: asyncio.Task[None] | None = None

    def add(self, request: Request, settle: Callable[[Answered], None]) -> None:
        """Add a request, which is sent with the others of this turn of the event loop; ``settle`` is called with its outcome."""
        if not self._added:
            self._loop.call_soon(self._send)
        self._added.append(_Ticket(request, settle))

    def _send(self) -> None:
        n_added = len(self._added)
        self._waiting += self._added
        self._added.clear()
        if not self._is_batched:
            for _ in range(n_added):
                self._pool.submit(self._serve_some, 1)
        elif self._batches is None:
            self._batches = asyncio.create_task(self._serve_batches())

    def close(self) -> None:
        """Stop the threads after their current calls; return immediately."""
        self._added.clear()
        self._waiting.clear()
        if self._batches is not None:
            self._batches.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _serve_batches(self) -> None:
        """Serve batches until no request waits."""
        while self._waiting:
            await self._quiet()
            await self._loop.run_in_executor(self._pool, self._serve_some, len(self._waiting))
        self._batches = None

    def _serve_some(self, n: int) -> None:
        """Serve the first ``n`` requests that wait, or as many as there are; runs in a thread."""
        batch = self._take(n)
        missing, last = set(range(len(batch))), time.monotonic()

        def deliver(answers: Mapping[int, Served]) -> None:
            nonlocal last
            new = {number: answer for number, answer in answers.items() if number in missing}
            if new:
                last, share = time.monotonic(), (time.monotonic() - last) / len(new)
                missing.difference_update(new)
                answered = [(batch[number], _answered(answer, share)) for number, answer in new.items()]
                for error in {answer for answer in new.values() if isinstance(answer, Unreachable)}:  # those that wait ask no further
                    answered += [(ticket, _answered(error, 0.0)) for ticket in self._take(len(self._waiting))]
                self._loop.call_soon_threadsafe(_settle, answered)

        try:
            if batch:
                self._serve([ticket.request for ticket in batch], deliver)
        except DeviceLost as error:  # nothing more can be answered: the run ends, to be resumed
            self._loop.call_soon_threadsafe(self._end, error)
        except IdxError as error:
            deliver(dict.fromkeys(missing, error))
        except BaseException as error:  # noqa: BLE001 - raised again by who runs the questions
            self._loop.call_soon_threadsafe(self._end, error)

    def _take(self, n: int) -> list[_Ticket]:
        taken = list[_Ticket]()
        with contextlib.suppress(IndexError):  # other threads take requests, too
            while len(taken) < n:
                taken.append(self._waiting.popleft())
        return taken


def _settle(answered: Iterable[tuple[_Ticket, Answered]]) -> None:
    """Hand the outcomes of requests to those who wait."""
    for ticket, outcome in answered:
        ticket.settle(outcome)


def _ask(llm: LLM, calls: list[Call], deliver: Deliver) -> None:
    deliver(dict(enumerate(llm.run(calls, deliver))))


def _answered(answer: Served, share: float) -> Answered:
    """Return the outcome of a request; ``share`` is its part of the time of its batch, in seconds."""
    if isinstance(answer, IdxError):
        return Answered(Outcome(error=error_text(answer), seconds=share), answer)
    if not isinstance(answer, Reply):
        return Answered(Outcome(result=answer, seconds=share))
    result = tuple(map(cut_loop, answer.result)) if isinstance(answer.result, tuple) else answer.result
    return Answered(Outcome(**{**answer._asdict(), "result": result, "seconds": answer.seconds or share}))


def error_text(error: IdxError) -> str:
    """Return class and message of an error."""
    return f"{type(error).__name__}: {error}"


def _search(searcher: Searcher, groups: list[list[str]], options: SearchOptions) -> list[Ranking | IdxError]:
    """Search for all groups. If the search is refused, search for each group alone, so that only invalid groups fail."""
    try:
        return [InputError(f"the search is refused: {one.error}") if one.error else one for one in searcher.search_groups(groups, options)]
    except (InputError, ValueError) as error:
        if len(groups) == 1:
            return [error if isinstance(error, IdxError) else InputError(f"the search is refused: {error}")]
        return [answer for group in groups for answer in _search(searcher, [group], options)]
    except DeviceLost:
        raise
    except IdxError as error:
        return [error] * len(groups)

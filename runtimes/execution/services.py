"""Services of a run: models, searcher and title lookup, and the dispatch of requests to them.

An endpoint answers calls one by one, as many at a time as it takes; every other service answers in batches, one batch at a time: what
is requested meanwhile is the next batch. A batch of searches becomes one ``search_groups`` call for each distinct set of search options.
Equal requests are served once, unless they sample without a seed. A text that repeats itself until the token limit is cut after the first
time (``repetition``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

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
from wikidx.runtimes.methods.requests import LookUpTitle, Request, Result, Retrieve, Truncate

_MAX_RECENT = 20_000  # results kept for reuse: those of a few thousand questions, about 100 MB

TitleLookup = Callable[[str], Sequence[Passage]]
"""Function: title -> passages with this title, in corpus order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Models and searcher that serve requests.

    Attributes:
        llms: models by role; one model may have several roles.
        searcher: searcher for ``Retrieve``; None: these requests fail.
        look_up_title: lookup for ``LookUpTitle``; None: these requests fail.
        search: default search options; a request's own options override them.
    """

    llms: Mapping[str, LLM]
    searcher: Searcher | None = None
    look_up_title: TitleLookup | None = None
    search: SearchOptions = SearchOptions()


Served = Reply | Result | IdxError
"""The answer of a service to a request: a model's reply, the result of a search or of a title lookup, or an error."""

Deliver = Callable[[Mapping[int, Served]], None]
"""Function that receives answers to requests of a batch, by the number of the request; only the first of each request counts."""

Serve = Callable[[list[Any], Deliver], None]
"""Function that serves a batch of requests. An ``IdxError`` is the outcome of all requests without another."""


class Dispatcher:
    """A service of requests by models and searcher, each in threads of its own; must be closed. For use by one thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._queues: dict[Hashable, _Queue] = {}
        self._served: _Outcomes = SimpleQueue()
        self._recent: OrderedDict[Hashable, Outcome] = OrderedDict()
        self._waiting: dict[Hashable, list[Any]] = {}  # key of an open request -> those who wait for it
        self._reused: list[tuple[Any, Outcome]] = []

    def submit(self, owner: object, request: Request) -> None:
        """Submit a request, which ``collect`` sends; ``owner`` comes back with its outcome.

        Raises:
            UnknownNameError: a role has no model.
        """
        key = self._key(request)
        if key in self._recent:
            self._recent.move_to_end(key)
            self._reused.append((owner, dataclasses.replace(self._recent[key], is_reused=True)))
        elif key in self._waiting:
            self._waiting[key].append(owner)
        else:
            self._waiting[key] = [owner]
            self._queue_for(request).add(key, request)

    def collect(self) -> list[tuple[Any, Outcome]]:
        """Send all submitted requests, wait for an outcome, and return all outcomes that are there, each with its request's owner."""
        for queue in self._queues.values():
            queue.send()
        outcomes, self._reused = self._reused, []
        while not outcomes or not self._served.empty():
            served = self._served.get()
            if isinstance(served, BaseException):
                raise served
            for key, outcome in served:
                if outcome.error is None and type(key) is not object:
                    self._recent[key] = outcome
                    if len(self._recent) > _MAX_RECENT:
                        self._recent.popitem(last=False)
                first, *others = self._waiting.pop(key)
                outcomes += [(first, outcome), *((other, dataclasses.replace(outcome, is_reused=True)) for other in others)]
        return outcomes

    def serve_immediately(self, request: Request) -> Outcome:
        """Serve a request that waits for nothing: a note or a truncation."""
        if not isinstance(request, Truncate):
            return Outcome()
        return Outcome(result=self._llm(request.role).truncate(request.text, request.max_tokens, keep=request.keep))

    def close(self) -> None:
        """Stop the threads after their current calls; return immediately."""
        for queue in self._queues.values():
            queue.close()

    def _key(self, request: Request) -> Hashable:
        """Return the key that equal requests share; a request whose result must not be reused has an object of its own."""
        if not isinstance(request, Call):
            return request
        return (id(self._llm(request.role)), dataclasses.replace(request, role="")) if is_repeatable(request) else object()

    def _llm(self, role: str) -> LLM:
        if role not in self._services.llms:
            raise unknown_name_error("role", role, self._services.llms)
        return self._services.llms[role]

    def _queue_for(self, request: Request) -> _Queue:
        llm = self._llm(request.role) if isinstance(request, Call) else None
        key: Hashable = type(request).__name__ if llm is None else id(llm)
        if key not in self._queues:
            serve: Serve = partial(_ask, llm) if llm else self._search if isinstance(request, Retrieve) else self._look_up
            self._queues[key] = _Queue(serve, llm.capabilities.concurrency if llm else None, self._served)
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


_Outcomes = SimpleQueue[list[tuple[Hashable, Outcome]] | BaseException]


class _Queue:
    """Requests that wait for one service, and the threads that serve them.

    Args:
        serve: the service.
        concurrency: number of requests that are served at a time, one by one; None: a batch of all that wait, one batch at a time.
        served: queue of outcomes, each with its request's key; an exception that is no ``IdxError`` is also put there.
    """

    def __init__(self, serve: Serve, concurrency: int | None, served: _Outcomes) -> None:
        self._serve, self._is_batched, self._served = serve, concurrency is None, served
        self._pool = RequestThreads(concurrency, "service") if concurrency else ThreadPoolExecutor(1, "service")
        self._added: list[tuple[Hashable, Request]] = []
        self._waiting: deque[tuple[Hashable, Request]] = deque()

    def add(self, key: Hashable, request: Request) -> None:
        """Add a request, which ``send`` sends."""
        self._added.append((key, request))

    def send(self) -> None:
        """Send the added requests."""
        n_jobs = min(len(self._added), 1) if self._is_batched else len(self._added)
        self._waiting += self._added
        self._added.clear()
        for _ in range(n_jobs):
            self._pool.submit(self._run)

    def close(self) -> None:
        """Stop the threads after their current calls; return immediately."""
        self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, n: int) -> list[tuple[Hashable, Request]]:
        taken = list[tuple[Hashable, Request]]()
        with contextlib.suppress(IndexError):  # other threads take requests, too
            while len(taken) < n:
                taken.append(self._waiting.popleft())
        return taken

    def _run(self) -> None:
        batch = self._take(len(self._waiting) if self._is_batched else 1)
        missing, last = set(range(len(batch))), time.monotonic()

        def deliver(answers: Mapping[int, Served]) -> None:
            nonlocal last
            new = {number: answer for number, answer in answers.items() if number in missing}
            if new:
                last, share = time.monotonic(), (time.monotonic() - last) / len(new)
                missing.difference_update(new)
                self._served.put([(batch[number][0], _outcome(answer, share)) for number, answer in new.items()])
                for error in {answer for answer in new.values() if isinstance(answer, Unreachable)}:
                    self._served.put([(key, _outcome(error, 0.0)) for key, _ in self._take(len(self._waiting))])

        try:
            if batch:
                self._serve([request for _, request in batch], deliver)
        except DeviceLost as error:  # nothing more can be answered: the run ends, to be resumed
            self._served.put(error)
        except IdxError as error:
            deliver(dict.fromkeys(missing, error))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._served.put(error)


def _ask(llm: LLM, calls: list[Call], deliver: Deliver) -> None:
    deliver(dict(enumerate(llm.run(calls, deliver))))


def _outcome(answer: Served, share: float) -> Outcome:
    """Return the outcome of a request; ``share`` is its part of the time of its batch, in seconds."""
    if isinstance(answer, IdxError):
        return Outcome(error=error_text(answer), seconds=share)
    if not isinstance(answer, Reply):
        return Outcome(result=answer, seconds=share)
    result = tuple(map(cut_loop, answer.result)) if isinstance(answer.result, tuple) else answer.result
    return Outcome(**{**answer._asdict(), "result": result, "seconds": answer.seconds or share})


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

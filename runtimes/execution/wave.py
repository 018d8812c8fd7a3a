"""Waves: the pending requests of all open questions, served together.

Each model gets one batch with the calls of all its roles, in the order of the questions. The searcher gets one ``search_groups`` call for
each distinct set of search options. Models and searcher run concurrently. A request reuses the result of an earlier equal request, unless
the request samples without a seed. A text that repeats itself until the token limit is cut after the first time (``repetition``).
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from wikidx.corpora.errors import IdxError, InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import unknown_name_error
from wikidx.retrievers.base import Ranking, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.llms.base import LLM, Call, Gen, Nll, Reply, YesNo
from wikidx.runtimes.llms.cache import is_repeatable
from wikidx.runtimes.llms.repetition import cut_loop
from wikidx.runtimes.methods.requests import IMMEDIATE, LookUpTitle, Note, Request, Result, Retrieve, Truncate

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


class Outcome(NamedTuple):
    """The outcome of a request.

    Attributes:
        result: the result for the method.
        error: the error of a failed request; None: no error.
        prompt_tokens, completion_tokens: the cost, also if the result is reused.
        model: the model that answered, as its endpoint names it; empty: unknown.
        seconds: time from sending the request to its result; of a request served in a batch, its share of the batch's time.
        is_reused: whether the result is that of an earlier equal request.
    """

    result: Result = None
    error: IdxError | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    seconds: float = 0.0
    is_reused: bool = False


class _Job(NamedTuple):
    """Requests that are served together by one call.

    Attributes:
        serve: the call: requests -> outcomes.
        requests: cache key -> request.
    """

    serve: Callable[[list[Any]], list[Outcome]]
    requests: dict[Hashable, Request]

    def run(self) -> list[Outcome]:
        """Serve the requests. An error of the call becomes the error of each request."""
        started = time.monotonic()
        try:
            outcomes = self.serve(list(self.requests.values()))
            share = (time.monotonic() - started) / len(outcomes)
            return [outcome if outcome.seconds else outcome._replace(seconds=share) for outcome in outcomes]
        except IdxError as error:
            return [Outcome(error=error)] * len(self.requests)


class Waves:
    """A service of requests in waves; must be closed.

    Args:
        services: models and searcher.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pool = ThreadPoolExecutor(len(services.llms) + 2, thread_name_prefix="wave")
        self._recent: OrderedDict[Hashable, Outcome] = OrderedDict()

    def serve(self, requests: Sequence[Request]) -> list[Outcome]:
        """Serve the requests of a wave, and return their outcomes in order.

        Raises:
            UnknownNameError: a role has no model.
        """
        keys = [self._key(number, request) for number, request in enumerate(requests)]
        known = {key: self._recent[key] for key in keys if key in self._recent}
        jobs: dict[Hashable, _Job] = {}
        for key, request in zip(keys, requests, strict=True):
            if key not in known:
                group, serve = self._call_for(request)
                jobs.setdefault(group, _Job(serve, {})).requests.setdefault(key, request)
        running = [(job, self._pool.submit(job.run)) for job in jobs.values()]
        fresh = {key: outcome for job, future in running for key, outcome in zip(job.requests, future.result(), strict=True)}
        self._remember(fresh, known)
        return [self._outcome(key, fresh, known) for key in keys]

    def serve_immediately(self, request: Request) -> Outcome:
        """Serve a request that needs no wave: a note or a truncation."""
        if not isinstance(request, Truncate):
            return Outcome()
        return Outcome(self._llm(request.role).truncate(request.text, request.max_tokens, keep=request.keep))

    def close(self) -> None:
        """Stop the threads after their current calls; return immediately."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _outcome(self, key: Hashable, fresh: dict[Hashable, Outcome], known: dict[Hashable, Outcome]) -> Outcome:
        is_reused = key in known
        if not is_reused:
            known[key] = fresh[key]  # an equal request later in this wave counts as reused
        return known[key]._replace(is_reused=is_reused)

    def _remember(self, fresh: Mapping[Hashable, Outcome], known: Mapping[Hashable, Outcome]) -> None:
        for key in known:
            self._recent.move_to_end(key)
        for key, outcome in fresh.items():
            if outcome.error is None and not isinstance(key, int):
                self._recent[key] = outcome
        while len(self._recent) > _MAX_RECENT:
            self._recent.popitem(last=False)

    def _key(self, number: int, request: Request) -> Hashable:
        """Return the cache key of a request. If its result must not be reused, the key is its number in the wave."""
        if isinstance(request, Call):
            return (id(self._llm(request.role)), dataclasses.replace(request, role="")) if is_repeatable(request) else number
        return number if isinstance(request, IMMEDIATE) else request

    def _llm(self, role: str) -> LLM:
        if role not in self._services.llms:
            raise unknown_name_error("role", role, self._services.llms)
        return self._services.llms[role]

    def _call_for(self, request: Request) -> tuple[Hashable, Callable[[list[Any]], list[Outcome]]]:
        """Return a key and a function for a request. The function serves all requests with this key together."""
        match request:
            case Retrieve():
                run = self._services.search
                options = dataclasses.replace(run, k=request.k, merge=request.merge or run.merge, dedup=request.dedup or run.dedup)
                return (Retrieve, options), partial(self._search, options)
            case LookUpTitle():
                return LookUpTitle, self._look_up
            case Note() | Truncate():
                return Note, lambda requests: [self.serve_immediately(request) for request in requests]
            case _:
                llm = self._llm(request.role)
                return id(llm), partial(_ask, llm)

    def _search(self, options: SearchOptions, requests: list[Retrieve]) -> list[Outcome]:
        if self._services.searcher is None:
            raise InputError("the method searches, and there is nothing to search: add --corpus, --preset or --url")
        return _search(self._services.searcher, [list(request.queries) for request in requests], options)

    def _look_up(self, requests: list[LookUpTitle]) -> list[Outcome]:
        if self._services.look_up_title is None:
            raise InputError("the method looks titles up, which needs a corpus on this machine")
        return [Outcome(tuple(self._services.look_up_title(request.title))) for request in requests]


def _ask(llm: LLM, calls: list[Call]) -> list[Outcome]:
    return [
        Outcome(_cut_loops(reply.result), None, reply.prompt_tokens, reply.completion_tokens, reply.model, reply.seconds or 0.0)
        if isinstance(reply, Reply)
        else Outcome(error=reply)
        for reply in llm.run(calls)
    ]


def _cut_loops(result: tuple[Gen, ...] | YesNo | Nll) -> tuple[Gen, ...] | YesNo | Nll:
    return tuple(map(cut_loop, result)) if isinstance(result, tuple) else result


def _search(searcher: Searcher, groups: list[list[str]], options: SearchOptions) -> list[Outcome]:
    """Search for all groups. If the search is refused, search for each group alone, so that only invalid groups fail."""
    try:
        rankings: list[Ranking] = searcher.search_groups(groups, options)
        return [Outcome(ranking) for ranking in rankings]
    except (InputError, ValueError) as error:
        if len(groups) == 1:
            return [Outcome(error=error if isinstance(error, IdxError) else InputError(f"the search is refused: {error}"))]
        return [outcome for group in groups for outcome in _search(searcher, [group], options)]
    except IdxError as error:
        return [Outcome(error=error)] * len(groups)

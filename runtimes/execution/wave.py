"""Waves: the pending requests of all open questions, served together.

Every model gets one batch, in the order of the questions and across its roles; the searcher gets one ``search_groups`` call for each
distinct set of options, usually a single one. Models and searcher run concurrently. A request that equals an earlier one is not served
again if its result would be the same.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from wikidx.corpora.errors import IdxError, InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Ranking, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.llms.base import LLM, Call, Reply
from wikidx.runtimes.llms.cache import is_repeatable
from wikidx.runtimes.methods.requests import IMMEDIATE, LookUpTitle, Note, Request, Result, Retrieve, Truncate

_REMEMBERED = 20_000  # results: those of the last few thousand questions of a run, some 100 MB

Titled = Callable[[str], Sequence[Passage]]
"""A title -> the passages that have it, in the order of the corpus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Models and searcher that serve requests.

    Attributes:
        llms: role -> model; one model may have several roles.
        searcher: for ``Retrieve``; None: such requests fail.
        titled: for ``LookUpTitle``; None: such requests fail.
        search: default search options; those of a request override them.
    """

    llms: Mapping[str, LLM]
    searcher: Searcher | None = None
    titled: Titled | None = None
    search: SearchOptions = SearchOptions()


class Served(NamedTuple):
    """The outcome of a request.

    Attributes:
        result: sent to the method.
        error: why there is no result.
        prompt_tokens, completion_tokens: its cost, also if the result is reused.
        is_reused: whether the result is that of an equal request.
    """

    result: Result = None
    error: IdxError | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_reused: bool = False


class _Job(NamedTuple):
    """Distinct requests that are served by one call, by their cache keys."""

    serve: Callable[[list[Any]], list[Served]]
    requests: dict[Hashable, Request]

    def done(self) -> list[Served]:
        """Serve the requests; an error of the call is the error of each."""
        try:
            return self.serve(list(self.requests.values()))
        except IdxError as error:
            return [Served(error=error)] * len(self.requests)


class Waves:
    """Server of waves; must be closed.

    Args:
        services: models and searcher.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pool = ThreadPoolExecutor(len(services.llms) + 2, thread_name_prefix="wave")
        self._remembered: OrderedDict[Hashable, Served] = OrderedDict()

    def serve(self, requests: Sequence[Request]) -> list[Served]:
        """Serve the requests of a wave, each with its result or its error.

        Raises:
            UnknownNameError: a role has no model.
        """
        keys = [self._key(number, request) for number, request in enumerate(requests)]
        known = {key: self._remembered[key] for key in keys if key in self._remembered}
        jobs: dict[Hashable, _Job] = {}
        for key, request in zip(keys, requests, strict=True):
            if key not in known:
                place, serve = self._place(request)
                jobs.setdefault(place, _Job(serve, {})).requests.setdefault(key, request)
        running = [(job, self._pool.submit(job.done)) for job in jobs.values()]
        fresh = {key: served for job, future in running for key, served in zip(job.requests, future.result(), strict=True)}
        self._remember(fresh, known)
        return [self._taken(key, fresh, known) for key in keys]

    def at_once(self, request: Request) -> Served:
        """Serve a request that needs no wave: a note or a truncation."""
        if not isinstance(request, Truncate):
            return Served()
        return Served(self._llm(request.role).truncate(request.text, request.max_tokens, keep=request.keep))

    def close(self) -> None:
        """End each thread when its pending call returns, which may take long after an interruption."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _taken(self, key: Hashable, fresh: dict[Hashable, Served], known: dict[Hashable, Served]) -> Served:
        is_reused = key in known
        if not is_reused:
            known[key] = fresh[key]  # reused by the next equal request of this wave
        return known[key]._replace(is_reused=is_reused)

    def _remember(self, fresh: Mapping[Hashable, Served], known: Mapping[Hashable, Served]) -> None:
        for key in known:
            self._remembered.move_to_end(key)
        for key, served in fresh.items():
            if served.error is None and not isinstance(key, int):
                self._remembered[key] = served
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def _key(self, number: int, request: Request) -> Hashable:
        """Return the cache key of a request: its number in the wave if its result may differ the next time."""
        if isinstance(request, Call):
            return (id(self._llm(request.role)), dataclasses.replace(request, role="")) if is_repeatable(request) else number
        return number if isinstance(request, IMMEDIATE) else request

    def _llm(self, role: str) -> LLM:
        if role not in self._services.llms:
            raise near_names("role", role, self._services.llms)
        return self._services.llms[role]

    def _place(self, request: Request) -> tuple[Hashable, Callable[[list[Any]], list[Served]]]:
        """Return the key of the call that serves a request together with others, and the call."""
        match request:
            case Retrieve():
                run = self._services.search
                options = dataclasses.replace(run, k=request.k, merge=request.merge or run.merge, dedup=request.dedup or run.dedup)
                return (Retrieve, options), partial(self._search, options)
            case LookUpTitle():
                return LookUpTitle, self._look_up
            case Note() | Truncate():
                return Note, lambda requests: [self.at_once(one) for one in requests]
            case _:
                llm = self._llm(request.role)
                return id(llm), partial(_ask, llm)

    def _search(self, options: SearchOptions, requests: list[Retrieve]) -> list[Served]:
        if self._services.searcher is None:
            raise InputError("the method searches, and there is nothing to search: add --corpus, --preset or --url")
        return _search(self._services.searcher, [list(request.queries) for request in requests], options)

    def _look_up(self, requests: list[LookUpTitle]) -> list[Served]:
        if self._services.titled is None:
            raise InputError("the method looks titles up, which needs a corpus on this machine")
        return [Served(tuple(self._services.titled(request.title))) for request in requests]


def _ask(llm: LLM, calls: list[Call]) -> list[Served]:
    return [
        Served(reply.result, None, reply.prompt_tokens, reply.completion_tokens) if isinstance(reply, Reply) else Served(error=reply)
        for reply in llm.run(calls)
    ]


def _search(searcher: Searcher, groups: list[list[str]], options: SearchOptions) -> list[Served]:
    """Search for all groups; if the search is refused because of one group, only that group fails."""
    try:
        rankings: list[Ranking] = searcher.search_groups(groups, options)
        return [Served(ranking) for ranking in rankings]
    except (InputError, ValueError) as error:
        if len(groups) == 1:
            return [Served(error=error if isinstance(error, IdxError) else InputError(f"the search is refused: {error}"))]
        return [served for group in groups for served in _search(searcher, [group], options)]
    except IdxError as error:
        return [Served(error=error)] * len(groups)

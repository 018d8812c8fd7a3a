"""A wave: all requests that are pending in all open questions, served together.

Every model gets one batch, in the order of the questions, whatever the roles that ask it; the searcher gets one ``search_groups`` call for
each set of options that occurs, mostly one in all. Models and searcher work at the same time. A request that equals an earlier one is not
served again, if its result would be the same.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from wikidx.corpora.errors import IdxError, InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Ranking, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.llms.base import LLM, AskYesNo, Call, Generate, MeanNll, Reply
from wikidx.runtimes.llms.cache import is_repeatable
from wikidx.runtimes.methods.requests import LookUpTitle, Note, Request, Result, Retrieve, Truncate

_REMEMBERED = 20_000  # results; those of a run's last few thousand questions, some 100 MB

Titled = Callable[[str], Sequence[Passage]]
"""A title -> the passages that have it, in the order of the corpus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What requests are served with.

    Attributes:
        llms: role -> model; one model may have several roles.
        searcher: for ``Retrieve``; None: methods that search fail.
        titled: for ``LookUpTitle``; None: methods that look titles up fail.
        search: how searches are done, but for what a request says itself.
    """

    llms: Mapping[str, LLM]
    searcher: Searcher | None = None
    titled: Titled | None = None
    search: SearchOptions = SearchOptions()


class Served(NamedTuple):
    """What came of a request.

    Attributes:
        result: what the method is sent.
        error: why there is none.
        prompt_tokens, completion_tokens: what it costs, be it served or remembered.
        is_reused: whether an equal request had been served.
    """

    result: Result = None
    error: IdxError | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_reused: bool = False


class _Job(NamedTuple):
    """Distinct requests that go to one place together, by what they are remembered under."""

    serve: Callable[[list[Request]], list[Served]]
    requests: dict[Hashable, Request]


class Waves:
    """Serves waves; close it.

    Args:
        services: what requests are served with.
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
        running = [(job, self._pool.submit(job.serve, list(job.requests.values()))) for job in jobs.values()]
        fresh = {key: served for job, future in running for key, served in zip(job.requests, future.result(), strict=True)}
        self._remember(fresh, known)
        return [self._taken(key, fresh, known) for key in keys]

    def at_once(self, request: Note | Truncate) -> Result:
        """Serve a request that takes no wave."""
        if isinstance(request, Note):
            return None
        return self._llm(request.role).truncate(request.text, request.max_tokens, keep=request.keep)

    def close(self) -> None:
        """End the threads, each as soon as what it waits for is there: that may take long where an interruption left a call under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _taken(self, key: Hashable, fresh: dict[Hashable, Served], known: dict[Hashable, Served]) -> Served:
        is_reused = key in known
        if not is_reused:
            known[key] = fresh[key]  # the next equal request of this wave reuses it
        served = known[key]
        result = list(served.result) if isinstance(served.result, list) else served.result  # a ranking of one's own
        return served._replace(result=result, is_reused=is_reused)

    def _remember(self, fresh: Mapping[Hashable, Served], known: Mapping[Hashable, Served]) -> None:
        for key in known:
            self._remembered.move_to_end(key)
        for key, served in fresh.items():
            if served.error is None and not isinstance(key, int):
                self._remembered[key] = served
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def _key(self, number: int, request: Request) -> Hashable:
        """Return what a request is remembered under: its number in the wave if its result may differ the next time."""
        if isinstance(request, Generate | AskYesNo | MeanNll):
            return (id(self._llm(request.role)), *_asked_for(request)) if is_repeatable(request) else number
        return number if isinstance(request, Note | Truncate) else request

    def _llm(self, role: str) -> LLM:
        if role not in self._services.llms:
            raise near_names("role", role, self._services.llms)
        return self._services.llms[role]

    def _place(self, request: Request) -> tuple[Hashable, Callable[[list[Request]], list[Served]]]:
        """Return where a request is served together with others, and how."""
        match request:
            case Generate() | AskYesNo() | MeanNll():
                llm = self._llm(request.role)
                return id(llm), lambda calls: _asked(llm, calls)
            case Retrieve():
                options = _options(self._services.search, request)
                return (Retrieve, options), lambda requests: self._searched(requests, options)
            case LookUpTitle():
                return LookUpTitle, self._looked_up
            case _:
                return Note, lambda requests: [Served(self.at_once(one)) for one in requests if isinstance(one, Note | Truncate)]

    def _searched(self, requests: list[Request], options: SearchOptions) -> list[Served]:
        groups = [list(request.queries) for request in requests if isinstance(request, Retrieve)]
        if self._services.searcher is None:
            return [Served(error=InputError("the method searches, and there is nothing to search: add --corpus, --preset or --url"))] * len(
                groups
            )
        return _search(self._services.searcher, groups, options)

    def _looked_up(self, requests: list[Request]) -> list[Served]:
        titled = self._services.titled
        if titled is None:
            return [Served(error=InputError("the method looks titles up, which needs a corpus on this machine"))] * len(requests)
        titles = [request.title for request in requests if isinstance(request, LookUpTitle)]
        try:
            return [Served(tuple(titled(title))) for title in titles]
        except IdxError as error:
            return [Served(error=error)] * len(titles)


def _asked_for(call: Call) -> tuple[Hashable, ...]:
    """Return a call without the role that asks it."""
    match call:
        case Generate():
            return (Generate, call.prompt, call.decoding, call.n, call.schema, call.logprobs)
        case AskYesNo():
            return (AskYesNo, call.prompt, call.positive, call.negative)
        case MeanNll():
            return (MeanNll, call.prompt, call.continuation)


def _options(search: SearchOptions, request: Retrieve) -> SearchOptions:
    return dataclasses.replace(search, k=request.k, merge=request.merge or search.merge, dedup=request.dedup or search.dedup)


def _asked(llm: LLM, requests: list[Request]) -> list[Served]:
    calls: list[Call] = [request for request in requests if isinstance(request, Generate | AskYesNo | MeanNll)]
    try:
        replies = llm.run(calls)
    except IdxError as error:
        return [Served(error=error)] * len(calls)
    return [
        Served(reply.result, None, reply.prompt_tokens, reply.completion_tokens) if isinstance(reply, Reply) else Served(error=reply)
        for reply in replies
    ]


def _search(searcher: Searcher, groups: list[list[str]], options: SearchOptions) -> list[Served]:
    """Search with all groups; if one of them is the reason that the search is refused, only that one fails."""
    try:
        rankings: list[Ranking] = searcher.search_groups(groups, options)
        return [Served(ranking) for ranking in rankings]
    except (InputError, ValueError) as error:
        if len(groups) == 1:
            return [Served(error=error if isinstance(error, IdxError) else InputError(f"the search is refused: {error}"))]
        return [served for group in groups for served in _search(searcher, [group], options)]
    except IdxError as error:
        return [Served(error=error)] * len(groups)

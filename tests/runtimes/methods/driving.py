"""Drives a method by hand: canned results in, the exact sequence of requests out."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking, ScoredPassage
from wikidx.runtimes.llms.base import AskYesNo, Gen, Generate, MeanNll, Mix, Nll, Score, Scores, YesNo
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import HERE, IMMEDIATE, Compare, LookUpTitle, Note, Request, Result, Retrieve, Truncate

Canned = Any
"""A text or texts for ``Generate``, a probability of yes for ``AskYesNo``, a mean for ``MeanNll``, passages for searches, cosines for
``Compare``; or the result."""


@dataclass(frozen=True)
class Driven:
    """The record of a method's run.

    Attributes:
        answer: its result.
        levels: the requests that were pending together, in order, without notes.
        notes: its notes in the trace.
    """

    answer: Answer
    levels: list[list[Request]]
    notes: list[Note]

    @property
    def requests(self) -> list[Request]:
        """All requests in order."""
        return [request for level in self.levels for request in level]

    @property
    def outline(self) -> list[list[str]]:
        """For each level the kinds of its requests: "retrieve", "look up", or the role, with "?" for yes/no and "nll" for scorings."""
        return [[kind(request) for request in level] for level in self.levels]

    def prompts(self, role: str) -> list[str]:
        """The prompts of a role, as text, in order."""
        return [
            prompt_text(call.prompt)
            for call in self.requests
            if isinstance(call, Generate | AskYesNo | MeanNll | Mix) and call.role == role
        ]

    @property
    def queries(self) -> list[tuple[str, ...]]:
        """The groups that were searched with, in order."""
        return [request.queries for request in self.requests if isinstance(request, Retrieve)]


_OTHER_KINDS = {Retrieve: "retrieve", LookUpTitle: "look up", Compare: "compare", Truncate: "truncate", Note: "note"}


def kind(request: Request) -> str:
    match request:
        case Generate():
            return request.role
        case Mix():
            return f"{request.role} mix"
        case Score():
            return f"{request.role} score"
        case AskYesNo():
            return f"{request.role}?"
        case MeanNll():
            return f"{request.role} nll"
        case _:
            return _OTHER_KINDS[type(request)]


def drive(run: Coroutine[Any, Any, Answer], canned: Sequence[Canned] | Callable[[Request], Canned]) -> Driven:
    """Run a method with canned results: one for each request that is neither a note nor a cut, in order; or a function from requests.

    A text is cut to its first or last words in place of tokens.

    Raises:
        AssertionError: there are too few results, or too many.
    """
    left = None if callable(canned) else iter(canned)

    def result(request: Request) -> Result:
        if left is None:
            return as_result(request, canned(request))  # type: ignore[operator]
        given = next(left, left)
        assert given is not left, f"no result is left for {request}"
        return as_result(request, given)

    levels: list[list[Request]] = []
    notes: list[Note] = []
    running = _in_levels(run, copy_context())
    results: list[Result] | None = None
    while True:
        try:
            requests = next(running) if results is None else running.send(results)
        except StopIteration as stop:
            assert left is None or next(left, left) is left, "results are left over"
            return Driven(stop.value, levels, notes)
        notes += [request for request in requests if isinstance(request, Note)]
        level: list[Request] = [request for request in requests if not isinstance(request, Note | Truncate)]
        if level:
            levels.append(level)
        results = [_at_once(request) if isinstance(request, Note | Truncate) else result(request) for request in requests]


class _Levels:
    """A place whose requests and gathers are yielded to ``_in_levels``."""

    @types.coroutine
    def send(self, request: Request) -> Generator[Request, Any, Any]:
        return (yield request)

    @types.coroutine
    def gather(self, runs: Sequence[Awaitable[Any]]) -> Generator[_Gather, Any, Any]:
        return (yield _Gather(runs, copy_context()))


class _Gather(NamedTuple):
    """Branches, and the context of the method that gathers them."""

    runs: Sequence[Any]
    context: Context


def _in_levels(run: Coroutine[Any, Any, Any], outer: Context) -> Generator[list[Request], list[Result], Any]:
    """Run a coroutine with all that it gathers level by level: yield the requests that can be served together, notes and cuts alone."""
    result: Any = None
    context = outer.copy()
    context.run(HERE.set, _Levels())
    while True:
        try:
            request = context.run(run.send, result)
        except StopIteration as stop:
            return stop.value
        result = (yield from _gathered(request)) if isinstance(request, _Gather) else (yield [request])[0]


def _gathered(gather: _Gather) -> Generator[list[Request], list[Result], list[Any]]:
    branches = [_in_levels(run, gather.context) for run in gather.runs]
    done: dict[int, Any] = {}
    sent: dict[int, Any] = dict.fromkeys(range(len(branches)))  # branch's number -> results to send to it
    while sent:
        pending: dict[int, list[Request]] = {}
        for number, results in sent.items():
            try:
                requests = branches[number].send(results)
                while all(isinstance(request, IMMEDIATE) for request in requests):
                    requests = branches[number].send((yield requests))
                pending[number] = requests
            except StopIteration as stop:
                done[number] = stop.value
        answers = iter((yield [request for requests in pending.values() for request in requests]) if pending else ())
        sent = {number: [next(answers) for _ in requests] for number, requests in pending.items()}
    return [done[number] for number in range(len(branches))]


def _at_once(request: Note | Truncate) -> str | None:
    if isinstance(request, Note):
        return None
    words = request.text.split()
    return " ".join(words[: request.max_tokens] if request.keep == "start" else words[-request.max_tokens :])


def as_result(request: Request, given: Canned) -> Result:
    """Expand a test's shorthand into a result."""
    match request:
        case Generate() | Mix():
            texts: Iterable[Canned] = [given] if isinstance(given, str | Gen) else given
            return tuple(Gen(text=text) if isinstance(text, str) else text for text in texts)
        case Score():
            return Scores(values=tuple(given))
        case AskYesNo():
            return YesNo(p_positive=given, p_negative=1 - given) if isinstance(given, int | float) else given
        case MeanNll():
            return Nll(total=given, n_tokens=1) if isinstance(given, int | float) else given
        case Retrieve():
            return Ranking(
                hit if isinstance(hit, ScoredPassage) else ScoredPassage(hit, rank, 1 / (1 + rank), ()) for rank, hit in enumerate(given)
            )
        case LookUpTitle() | Compare():
            return tuple(given)
        case _:
            raise AssertionError(f"{request} takes no canned result")


def passages(*texts: str) -> list[Passage]:
    """Make passages "1", "2", … titled "T1", "T2", …."""
    return [Passage(str(number), f"T{number}", text) for number, text in enumerate(texts, 1)]

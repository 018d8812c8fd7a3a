"""Requests of a method, and the functions that yield them.

A method is a generator: it yields a request, and receives its result. A method calls the functions below instead of yielding requests
itself::

    passages = yield from retrieve(question, k=5)
    draft = yield from generate(prompt(question=question, passages=format_passages(passages)))
    scores = yield from gather(ask_yes_no(relevance(question=question, passage=p)) for p in passages)

``gather`` runs such generators concurrently, each at its own pace, and waits for all; a generator may be a whole method and may be
recursive. ``label_trace`` labels a generator's requests in the trace. A failed request ends the question with an error, which the method
cannot catch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast

from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.runtimes.llms.base import GREEDY, AskYesNo, Decoding, Gen, Generate, MeanNll, Nll, Prompt, Schema, YesNo

from .model_output import drop_placeholder

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieve:
    """Search with a group of queries; the result is one ``Ranking``.

    Attributes:
        queries: the group, primary query first.
        k: number of passages.
        merge, dedup: replace the options of the same name in the run's ``SearchOptions``; None: not replaced.
        path: labels of the request in the method's trace.
    """

    queries: tuple[str, ...]
    k: int
    merge: MergeRule | None = None
    dedup: DedupRule | None = None
    path: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTitle:
    """Fetch the passages with exactly this title, in the order of the corpus; the result is ``tuple[Passage, ...]``."""

    title: str
    path: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Truncate a text to ``max_tokens`` tokens of a role's model; the result is a string."""

    text: str
    max_tokens: int
    role: str = "answer"
    keep: Literal["start", "end"] = "start"
    path: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Add a note to the trace; the result is None.

    Attributes:
        text: a few words.
        data: JSON values that accompany the text.
        path: labels of the note in the method's trace.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    path: tuple[str, ...] = field(default=(), compare=False)


Passages = tuple[Passage, ...]
Request = Generate | AskYesNo | MeanNll | Retrieve | LookUpTitle | Truncate | Note
Result = tuple[Gen, ...] | YesNo | Nll | Ranking | Passages | str | None
Run = Generator[Union[Request, "Gather"], Any, T]
"""A generator that yields requests, receives the result of each, and returns a ``T``."""


class Gather(NamedTuple):
    """Run generators concurrently; the result is the list of their results, in order."""

    runs: tuple[Run[Any], ...]


IMMEDIATE = (Note, Truncate)
"""Requests that are served immediately, without waiting for a model or a search."""


def generate(
    prompt: Prompt, decoding: Decoding = GREEDY, *, role: str = "answer", schema: Schema | None = None, logprobs: bool = False
) -> Run[Gen]:
    """Generate one text."""
    texts = yield Generate(prompt=prompt, role=role, decoding=decoding, schema=schema, logprobs=logprobs)
    return _read(cast("Gen", texts[0]))


def sample(prompt: Prompt, n: int, decoding: Decoding, *, role: str = "answer", logprobs: bool = False) -> Run[tuple[Gen, ...]]:
    """Generate ``n`` texts. If ``n`` is above 1, ``decoding`` needs a temperature."""
    texts = yield Generate(prompt=prompt, role=role, decoding=decoding, n=n, logprobs=logprobs)
    return tuple(map(_read, cast("tuple[Gen, ...]", texts)))


def _read(gen: Gen) -> Gen:
    return gen if drop_placeholder(gen.text) else gen.part(0, 0)


def ask_yes_no(
    prompt: Prompt, *, role: str = "answer", positive: Sequence[str] = ("yes",), negative: Sequence[str] = ("no",)
) -> Run[YesNo]:
    """Return the next-token probabilities of the two answers to a yes/no prompt."""
    answer = yield AskYesNo(prompt=prompt, role=role, positive=tuple(positive), negative=tuple(negative))
    return cast("YesNo", answer)


def mean_nll(prompt: Prompt, continuation: str, *, role: str = "answer") -> Run[Nll]:
    """Return the negative log-likelihood of ``continuation`` after a prompt."""
    nll = yield MeanNll(prompt=prompt, continuation=continuation, role=role)
    return cast("Nll", nll)


def retrieve(queries: str | Sequence[str], k: int, *, merge: MergeRule | None = None, dedup: DedupRule | None = None) -> Run[Passages]:
    """Search with a query or a group of queries (primary query first), and return the passages, best first.

    Raises:
        ValueError: the group is empty.
    """
    group = (queries,) if isinstance(queries, str) else tuple(queries)
    if not group:
        raise ValueError("there is no query to search with")
    ranking = yield Retrieve(queries=group, k=k, merge=merge, dedup=dedup)
    return tuple(hit.passage for hit in cast("Ranking", ranking))


def look_up_title(title: str) -> Run[Passages]:
    """Fetch the passages with exactly this title, in the order of the corpus."""
    passages = yield LookUpTitle(title=title)
    return cast("Passages", passages)


def truncate(text: str, max_tokens: int, *, role: str = "answer", keep: Literal["start", "end"] = "start") -> Run[str]:
    """Truncate a text to ``max_tokens`` tokens of a role's model."""
    cut = yield Truncate(text=text, max_tokens=max_tokens, role=role, keep=keep)
    return cast("str", cut)


def note(text: str, data: Mapping[str, Any] | None = None) -> Run[None]:
    """Add a note to the trace, with optional JSON values."""
    yield Note(text=text, data=dict(data or {}))


def label_trace(label: str, run: Run[T]) -> Run[T]:
    """Run a generator, and add ``label`` to its requests in the trace."""
    return serve_by(lambda request: send(dataclasses.replace(request, path=(label, *request.path))), run)


def serve_by(serve: Callable[[Request], Run[Any]], run: Run[T]) -> Run[T]:
    """Run a generator whose requests, and those of the branches that it gathers, are served by ``serve``."""
    result: Any = None
    while True:
        try:
            request = run.send(result)
        except StopIteration as stop:
            return cast("T", stop.value)
        if isinstance(request, Gather):
            result = yield Gather(tuple(serve_by(serve, branch) for branch in request.runs))
        else:
            result = yield from serve(request)


def send(request: Request) -> Run[Any]:
    """Send a request, and return its result."""
    return (yield request)


def gather(runs: Iterable[Run[T]]) -> Run[list[T]]:
    """Run generators concurrently, and return their results in order."""
    results = yield Gather(tuple(runs))
    return cast("list[T]", results)

"""Requests of a method, and the functions that send them.

A method is an ``async`` function, and awaits what it needs::

    passages = await retrieve(question, k=5)
    draft = await generate(prompt(question=question, passages=format_passages(passages)))
    scores = await gather(*(ask_yes_no(relevance(question=question, passage=p)) for p in passages))

``gather`` runs branches side by side, each at its own pace, and waits for all; a branch may be a whole method and may be recursive.
``with label("round 1"):`` labels requests in the trace. A failed request raises its error (``base.errors.IdxError``), which the method may
catch; otherwise it ends the question. A method may await anything else as well, such as a tool, but side by side only by ``gather``: names
and seeds of requests come from their place in the method, so that they do not depend on time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, cast

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.options import DedupRule, MergeRule
from wikidx.runtimes.llms.base import AskYesNo, Gen, Generate, MeanNll, Mix, Nll, Score, Scores, YesNo
from wikidx.runtimes.llms.prompts import GREEDY, Decoding, Prompt, Schema

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
class Compare:
    """Compare a text with others by an encoder; the result is a tuple of cosines, one for each of ``others``."""

    text: str
    others: tuple[str, ...]
    encoder: str
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
Request = Generate | AskYesNo | MeanNll | Mix | Score | Retrieve | LookUpTitle | Compare | Truncate | Note
Result = tuple[Gen, ...] | YesNo | Nll | Scores | Ranking | Passages | tuple[float, ...] | str | None

IMMEDIATE = (Note, Truncate)
"""Requests that are served immediately, without waiting for a model or a search."""

OLD_METHOD = "{}: methods are 'async def' functions now; write 'await' for 'yield from', 'T' for 'Run[T]', 'with label(…)' for label_trace"
"""What to change in a method of former versions; the gap is for what has been found."""


class Here(Protocol):
    """The place of a question or of a branch: who serves its requests, and runs its branches."""

    def send(self, request: Request) -> Awaitable[Any]:
        """Return the result of a request."""
        ...

    def gather(self, runs: Sequence[Awaitable[Any]]) -> Awaitable[list[Any]]:
        """Return the results of branches."""
        ...


HERE: ContextVar[Here] = ContextVar("here")
_LABELS: ContextVar[tuple[str, ...]] = ContextVar("labels", default=())


def __getattr__(name: str) -> Any:  # noqa: ANN401 - never returns one
    if name in ("Run", "Gather", "label_trace", "serve_by"):
        raise InputError(OLD_METHOD.format(f"there is no '{name}' any more"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


async def generate(
    prompt: Prompt,
    decoding: Decoding = GREEDY,
    *,
    role: str = "answer",
    schema: Schema | None = None,
    logprobs: bool = False,
    control: tuple[str, ...] = (),
) -> Gen:
    """Generate one text; ``control`` names tokens of the model that the text keeps, see ``Generate``."""
    texts = await send(Generate(prompt=prompt, role=role, decoding=decoding, schema=schema, logprobs=logprobs, control=control))
    return _read(cast("Gen", texts[0]))


async def sample(prompt: Prompt, n: int, decoding: Decoding, *, role: str = "answer", logprobs: bool = False) -> tuple[Gen, ...]:
    """Generate ``n`` texts. If ``n`` is above 1, ``decoding`` needs a temperature."""
    texts = await send(Generate(prompt=prompt, role=role, decoding=decoding, n=n, logprobs=logprobs))
    return tuple(map(_read, cast("tuple[Gen, ...]", texts)))


def _read(gen: Gen) -> Gen:
    return gen if drop_placeholder(gen.text) else gen.part(0, 0)


async def ask_yes_no(
    prompt: Prompt, *, role: str = "answer", positive: Sequence[str] = ("yes",), negative: Sequence[str] = ("no",)
) -> YesNo:
    """Return the next-token probabilities of the two answers to a yes/no prompt."""
    answer = await send(AskYesNo(prompt=prompt, role=role, positive=tuple(positive), negative=tuple(negative)))
    return cast("YesNo", answer)


async def mean_nll(prompt: Prompt, continuation: str, *, role: str = "answer") -> Nll:
    """Return the negative log-likelihood of ``continuation`` after a prompt."""
    nll = await send(MeanNll(prompt=prompt, continuation=continuation, role=role))
    return cast("Nll", nll)


async def mix(prompts: Sequence[Prompt], weights: Sequence[float], decoding: Decoding = GREEDY, *, role: str = "answer") -> Gen:
    """Generate one text from the weighted mean of the next-token distributions after several prompts."""
    texts = await send(Mix(prompts=tuple(prompts), weights=tuple(weights), role=role, decoding=decoding))
    return _read(cast("Gen", texts[0]))


async def score(query: str, texts: Sequence[str], *, role: str) -> tuple[float, ...]:
    """Return the score of each text for a query by the encoder or classifier of a role."""
    scores = await send(Score(prompt=query, texts=tuple(texts), role=role)) if texts else Scores(values=())
    return cast("Scores", scores).values


async def retrieve(queries: str | Sequence[str], k: int, *, merge: MergeRule | None = None, dedup: DedupRule | None = None) -> Passages:
    """Search with a query or a group of queries (primary query first), and return the passages, best first.

    Raises:
        ValueError: the group is empty.
    """
    return tuple(hit.passage for hit in await rank(queries, k, merge=merge, dedup=dedup))


async def rank(queries: str | Sequence[str], k: int, *, merge: MergeRule | None = None, dedup: DedupRule | None = None) -> Ranking:
    """Search as ``retrieve`` does, and return the passages with their scores; raises as ``retrieve`` does."""
    group = (queries,) if isinstance(queries, str) else tuple(queries)
    if not group:
        raise ValueError("there is no query to search with")
    return await _SEARCH.get()(Retrieve(queries=group, k=k, merge=merge, dedup=dedup))


async def look_up_title(title: str) -> Passages:
    """Fetch the passages with exactly this title, in the order of the corpus."""
    passages = await send(LookUpTitle(title=title))
    return cast("Passages", passages)


async def compare(text: str, others: Sequence[str], encoder: str) -> tuple[float, ...]:
    """Return the cosine of a text's vector and that of each other text, all encoded as queries."""
    cosines = await send(Compare(text=text, others=tuple(others), encoder=encoder))
    return cast("tuple[float, ...]", cosines)


async def truncate(text: str, max_tokens: int, *, role: str = "answer", keep: Literal["start", "end"] = "start") -> str:
    """Truncate a text to ``max_tokens`` tokens of a role's model."""
    cut = await send(Truncate(text=text, max_tokens=max_tokens, role=role, keep=keep))
    return cast("str", cut)


async def note(text: str, data: Mapping[str, Any] | None = None) -> None:
    """Add a note to the trace, with optional JSON values."""
    await send(Note(text=text, data=dict(data or {})))


@contextlib.contextmanager
def label(text: str) -> Iterator[None]:
    """Label the requests of what runs within, in the trace."""
    token = _LABELS.set((*_LABELS.get(), text))
    try:
        yield
    finally:
        _LABELS.reset(token)


async def labelled(text: str, run: Awaitable[T]) -> T:
    """Run a branch of a ``gather`` with a label of its own."""
    with label(text):
        return await run


async def send(request: Request) -> Any:  # noqa: ANN401 - of the kind that the request says
    """Send a request, and return its result."""
    labels = _LABELS.get()
    return await _here().send(dataclasses.replace(request, path=labels) if labels else request)


async def gather(*runs: Awaitable[T]) -> list[T]:
    """Run branches side by side, and return their results in order. If one fails, the others end, and its error is raised."""
    return await _here().gather(runs)


def _here() -> Here:
    try:
        return HERE.get()
    except LookupError:
        raise InputError("a method is run by execute, which serves its requests") from None


_SEARCH: ContextVar[Callable[[Retrieve], Awaitable[Ranking]]] = ContextVar("search", default=send)


@contextlib.contextmanager
def search_by(search: Callable[[Retrieve], Awaitable[Ranking]]) -> Iterator[None]:
    """Serve the searches of what runs within by a function."""
    token = _SEARCH.set(search)
    try:
        yield
    finally:
        _SEARCH.reset(token)

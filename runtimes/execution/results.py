"""What comes of a question: the answer, every step on the way, what it cost, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wikidx.corpora.passage import Passage
from wikidx.runtimes.methods.requests import Request, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request and its result.

    Attributes:
        wave: how many waves of the question came before; requests of one wave were served together.
        request: what was asked; ``request.path`` says for what.
        result: what came back; None also if ``error`` says why nothing did.
        error: what failed.
        prompt_tokens, completion_tokens: what it cost, whether or not an equal request had been answered before.
    """

    wave: int
    request: Request
    result: Result
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a question needs, whatever else ran beside it: equal requests of other questions make it no cheaper.

    Attributes:
        calls: of language models.
        prompt_tokens, completion_tokens: read and generated.
        searches, queries: groups searched for, and the queries in them.
        waves: rounds of requests that had to wait for one another.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    searches: int = 0
    queries: int = 0
    waves: int = 0

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Return what several questions need."""
        every = list(costs)
        return cls(**{field: sum(getattr(cost, field) for cost in every) for field in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a question fared in its run.

    Attributes:
        seconds: from its first request to its answer.
        reused: requests that were answered from an equal one.
    """

    seconds: float = 0.0
    reused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What came of a question.

    Attributes:
        id: the question's.
        question: its text.
        answer: the answer; empty if ``error`` says why there is none.
        passages: those that the answer rests on.
        detail: what else the method has found out.
        steps: everything that was asked, in order.
        cost, timing: all but ``timing`` is independent of what else ran beside it.
        degraded: every rule that replaced what a model cannot do.
        error: why there is no answer: class and message; None: there is one.
    """

    id: str
    question: str
    answer: str = ""
    passages: tuple[Passage, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    cost: Cost = Cost()
    timing: Timing = Timing()
    degraded: tuple[str, ...] = ()
    error: str | None = None

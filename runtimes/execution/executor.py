"""Execution of a method over many questions at once.

Every open question is a generator that waits for the results of its requests. Each wave serves the pending requests of all of them; an
answered question makes room for the next. The outcome of a question depends on neither the number of open questions nor their order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wikidx.corpora.errors import IdxError
from wikidx.runtimes.execution.results import Cost, Prediction, Step, Timing
from wikidx.runtimes.execution.wave import Served, Services, Waves
from wikidx.runtimes.llms.base import Call, Generate
from wikidx.runtimes.llms.text import whole_characters
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import IMMEDIATE, Request, Retrieve, Run
from wikidx.runtimes.questions import Question

Ask = Callable[[str], Run[Answer]]
"""A question's text -> the generator of a method with fixed options."""


@dataclass(slots=True)
class _Open:
    """An open question.

    Attributes:
        question: the question.
        run: the method's generator.
        pending: the requests that it waits for.
        steps: its requests so far, with results.
        answer, error: its outcome.
        waves, reused, drawn: counts of its waves, of reused results, and of sampling calls.
        started: seconds on the monotonic clock.
    """

    question: Question
    run: Run[Answer]
    pending: tuple[Request, ...] = ()
    steps: list[Step] = field(default_factory=list)
    answer: Answer | None = None
    error: IdxError | None = None
    waves: int = 0
    reused: int = 0
    drawn: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def has_ended(self) -> bool:
        return self.answer is not None or self.error is not None


def execute(ask: Ask, questions: Iterable[Question], services: Services, *, in_flight: int = 64, seed: int = 0) -> Iterator[Prediction]:
    """Yield a prediction for each question as it finishes; several that finish together come in the order of the questions.

    A question whose request fails, or whose method refuses it, yields a prediction with ``error``; the others continue.

    Args:
        ask: question's text -> generator.
        questions: consumed as room becomes available.
        services: models and searcher.
        in_flight: number of questions open at once.
        seed: of all sampling calls without a seed of their own.

    Raises:
        UnknownNameError: the method calls a role that has no model.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one question must be open")
    waves, waiting, open_questions = Waves(services), iter(questions), list[_Open]()
    try:
        while True:
            while len(open_questions) < in_flight and (question := next(waiting, None)) is not None:
                one = _Open(question, ask(whole_characters(question.text)))
                _advance(one, None, waves, seed)
                if one.has_ended:
                    yield _prediction(one)
                else:
                    open_questions.append(one)
            if not open_questions:
                return
            _serve(open_questions, waves, seed)
            yield from [_prediction(one) for one in open_questions if one.has_ended]
            open_questions = [one for one in open_questions if not one.has_ended]
    finally:
        waves.close()
        for one in open_questions:
            one.run.close()


def _serve(open_questions: list[_Open], waves: Waves, seed: int) -> None:
    """Serve a wave, and advance every question by it."""
    served = iter(waves.serve([request for one in open_questions for request in one.pending]))
    for one in open_questions:
        own = [next(served) for _ in one.pending]
        results = _record(one, own)
        one.reused += sum(result.is_reused for result in own)
        one.waves += 1
        one.error = next((result.error for result in own if result.error is not None), None)
        if one.error is None:
            _advance(one, results, waves, seed)
        else:
            one.run.close()


def _advance(one: _Open, results: Any, waves: Waves, seed: int) -> None:  # noqa: ANN401 - a tuple of results, None at first
    """Advance a question to its next requests that take a wave, or to its end."""
    try:
        while True:
            requests = one.run.send(results)
            one.pending = tuple(_seeded(request, one, seed) for request in requests)
            if not all(isinstance(request, IMMEDIATE) for request in one.pending):
                return
            results = _record(one, [waves.at_once(request) for request in one.pending])
    except StopIteration as stop:
        one.answer = stop.value
    except IdxError as error:
        one.error = error


def _seeded(request: Request, one: _Open, seed: int) -> Request:
    """Give a sampling call without a seed one derived from the run's seed, the question, and the number of the call in it."""
    if not isinstance(request, Generate) or request.decoding.is_greedy or request.decoding.seed is not None:
        return request
    described = f"{seed}\n{one.question.id}\n{one.drawn}"
    one.drawn += 1
    own = int.from_bytes(hashlib.sha256(described.encode()).digest()[:4], "big") >> 1  # 31 bits, which every endpoint accepts
    return dataclasses.replace(request, decoding=dataclasses.replace(request.decoding, seed=own))


def _record(one: _Open, served: Sequence[Served]) -> tuple[Any, ...]:
    """Append the pending requests with their outcomes to a question's steps, and return their results."""
    one.steps += [
        Step(
            wave=one.waves,
            request=request,
            result=of_it.result,
            error=None if of_it.error is None else _said(of_it.error),
            prompt_tokens=of_it.prompt_tokens,
            completion_tokens=of_it.completion_tokens,
        )
        for request, of_it in zip(one.pending, served, strict=True)
    ]
    return tuple(of_it.result for of_it in served)


def _said(error: IdxError) -> str:
    return f"{type(error).__name__}: {error}"


def _prediction(one: _Open) -> Prediction:
    answer = one.answer or Answer("")
    degraded = [said for step in one.steps for said in _degraded(step)]
    return Prediction(
        id=one.question.id,
        question=one.question.text,
        answer=answer.text,
        passages=answer.passages,
        detail=answer.detail,
        steps=tuple(one.steps),
        cost=_cost(one),
        timing=Timing(seconds=time.monotonic() - one.started, reused=one.reused),
        degraded=tuple(dict.fromkeys(degraded)),
        error=None if one.error is None else _said(one.error),
    )


def _degraded(step: Step) -> list[str]:
    results = step.result if isinstance(step.result, tuple) else (step.result,)
    return [said for result in results for said in getattr(result, "degraded", ())]


def _cost(one: _Open) -> Cost:
    searches = [step.request for step in one.steps if isinstance(step.request, Retrieve)]
    return Cost(
        calls=sum(isinstance(step.request, Call) for step in one.steps),
        prompt_tokens=sum(step.prompt_tokens for step in one.steps),
        completion_tokens=sum(step.completion_tokens for step in one.steps),
        searches=len(searches),
        queries=sum(len(search.queries) for search in searches),
        waves=one.waves,
    )

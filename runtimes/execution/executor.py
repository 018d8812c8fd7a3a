"""Concurrent execution of a method over many questions.

Each open question runs a generator of the method, which yields requests and waits for their results. A wave serves the pending requests of
all open questions. A finished question makes room for the next. The outcome of a question does not depend on the other open questions.
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
from wikidx.runtimes.execution.wave import Outcome, Services, Waves
from wikidx.runtimes.llms.base import Call, Generate
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import IMMEDIATE, Request, Retrieve, Run
from wikidx.runtimes.questions import Question

Ask = Callable[[str], Run[Answer]]
"""Function: text of a question -> generator of a method with fixed options."""

OnStep = Callable[[Question, Step], None]
"""Function that is called with each step of a question, as soon as the step has its result."""


@dataclass(slots=True)
class _OpenQuestion:
    """The state of an open question.

    Attributes:
        run: the method's generator.
        pending: requests without results.
        steps: earlier requests with their results.
        answer: the answer; None: no answer yet, or an error.
        error: the error that ended the question; None: no error.
        waves: number of waves so far.
        n_sampled: number of sampling calls that got a derived seed.
        started: start of the question, by ``time.monotonic``.
        on_step: called with each step; None: nobody.
    """

    question: Question
    run: Run[Answer]
    pending: tuple[Request, ...] = ()
    steps: list[Step] = field(default_factory=list)
    answer: Answer | None = None
    error: IdxError | None = None
    waves: int = 0
    n_sampled: int = 0
    started: float = field(default_factory=time.monotonic)
    on_step: OnStep | None = None

    @property
    def has_ended(self) -> bool:
        return self.answer is not None or self.error is not None


def execute(
    ask: Ask, questions: Iterable[Question], services: Services, *, in_flight: int = 64, seed: int = 0, on_step: OnStep | None = None
) -> Iterator[Prediction]:
    """Yield a prediction for each question as it finishes. Questions that finish in the same wave keep their order.

    If the method refuses a question, or one of its requests fails, the prediction has an ``error``. The other questions continue.

    Args:
        ask: the method with fixed options: text of a question -> generator.
        questions: the questions; each is taken when there is room for it.
        services: models and searcher.
        in_flight: maximum number of concurrent questions.
        seed: the run's seed; the seeds of sampling calls without a seed are derived from it.
        on_step: called with each step; an exception that it raises ends all questions.

    Raises:
        UnknownNameError: the method calls a role that has no model.
        ValueError: ``in_flight`` is less than 1.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one question must be open")
    waves, waiting, open_questions = Waves(services), iter(questions), list[_OpenQuestion]()
    try:
        while True:
            while len(open_questions) < in_flight and (question := next(waiting, None)) is not None:
                state = _OpenQuestion(question, ask(replace_surrogates(question.text)), on_step=on_step)
                _advance(state, None, waves, seed)
                if state.has_ended:
                    yield _to_prediction(state)
                else:
                    open_questions.append(state)
            if not open_questions:
                return
            _serve(open_questions, waves, seed)
            yield from [_to_prediction(state) for state in open_questions if state.has_ended]
            open_questions = [state for state in open_questions if not state.has_ended]
    finally:
        waves.close()
        for state in open_questions:
            state.run.close()


def _serve(open_questions: list[_OpenQuestion], waves: Waves, seed: int) -> None:
    """Serve a wave, and pass the results to the questions. A failed request ends its question."""
    outcomes = iter(waves.serve([request for state in open_questions for request in state.pending]))
    for state in open_questions:
        own = [next(outcomes) for _ in state.pending]
        results = _record(state, own)
        state.waves += 1
        state.error = next((result.error for result in own if result.error is not None), None)
        if state.error is None:
            _advance(state, results, waves, seed)
        else:
            state.run.close()


def _advance(state: _OpenQuestion, results: Any, waves: Waves, seed: int) -> None:  # noqa: ANN401 - a tuple of results, None at first
    """Run a question's generator until its requests need a wave, or until it ends."""
    try:
        while True:
            requests = state.run.send(results)
            state.pending = tuple(_set_seed(request, state, seed) for request in requests)
            if not all(isinstance(request, IMMEDIATE) for request in state.pending):
                return
            results = _record(state, [waves.serve_immediately(request) for request in state.pending])
    except StopIteration as stop:
        state.answer = stop.value
    except IdxError as error:
        state.error = error


def _set_seed(request: Request, state: _OpenQuestion, seed: int) -> Request:
    """Return the request. A sampling call without a seed gets a seed.

    The seed is derived from the run's seed, the question's id and the number of the sampling call.
    """
    if not isinstance(request, Generate) or request.decoding.is_greedy or request.decoding.seed is not None:
        return request
    material = f"{seed}\n{state.question.id}\n{state.n_sampled}"
    state.n_sampled += 1
    own = int.from_bytes(hashlib.sha256(material.encode()).digest()[:4], "big") >> 1  # 31 bits, which every endpoint accepts
    return dataclasses.replace(request, decoding=dataclasses.replace(request.decoding, seed=own))


def _record(state: _OpenQuestion, outcomes: Sequence[Outcome]) -> tuple[Any, ...]:
    """Append a step for each pending request to the question, and return the results."""
    steps = [
        Step(
            wave=state.waves,
            request=request,
            result=outcome.result,
            error=None if outcome.error is None else _error_text(outcome.error),
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            model=outcome.model,
            seconds=outcome.seconds,
            is_reused=outcome.is_reused,
        )
        for request, outcome in zip(state.pending, outcomes, strict=True)
    ]
    state.steps += steps
    if state.on_step is not None:
        for step in steps:
            state.on_step(state.question, step)
    return tuple(outcome.result for outcome in outcomes)


def _error_text(error: IdxError) -> str:
    return f"{type(error).__name__}: {error}"


def _to_prediction(state: _OpenQuestion) -> Prediction:
    answer = state.answer or Answer("")
    degraded = [fallback for step in state.steps for fallback in _degraded(step)]
    return Prediction(
        id=state.question.id,
        question=state.question.text,
        answer=answer.text,
        passages=answer.passages,
        detail=answer.detail,
        steps=tuple(state.steps),
        cost=_cost(state),
        timing=_timing(state),
        degraded=tuple(dict.fromkeys(degraded)),
        error=None if state.error is None else _error_text(state.error),
    )


def _timing(state: _OpenQuestion) -> Timing:
    service = sum(step.seconds for step in state.steps if not step.is_reused)
    return Timing(seconds=time.monotonic() - state.started, service=service, reused=sum(step.is_reused for step in state.steps))


def _degraded(step: Step) -> list[str]:
    results = step.result if isinstance(step.result, tuple) else (step.result,)
    return [fallback for result in results for fallback in getattr(result, "degraded", ())]


def _cost(state: _OpenQuestion) -> Cost:
    searches = [step.request for step in state.steps if isinstance(step.request, Retrieve)]
    return Cost(
        calls=sum(isinstance(step.request, Call) for step in state.steps),
        prompt_tokens=sum(step.prompt_tokens for step in state.steps),
        completion_tokens=sum(step.completion_tokens for step in state.steps),
        searches=len(searches),
        queries=sum(len(search.queries) for search in searches),
        waves=state.waves,
    )

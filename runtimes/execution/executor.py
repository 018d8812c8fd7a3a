"""Concurrent execution of a method over many questions.

Each open question runs a generator of the method, which yields requests. Whoever's result has come goes on at once: no question waits for
another, and no branch of a question (``gather``) for its neighbours. A finished question makes room for the next. The outcome of a question
depends neither on the other open questions nor on time: steps and derived seeds are numbered by their place in the question.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wikidx.corpora.errors import IdxError
from wikidx.runtimes.execution.results import Cost, Prediction, Step, Timing
from wikidx.runtimes.execution.services import Dispatcher, Outcome, Services
from wikidx.runtimes.llms.base import Call, Generate
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import IMMEDIATE, Gather, Request, Retrieve, Run
from wikidx.runtimes.questions import Question

Ask = Callable[[str], Run[Answer]]
"""Function: text of a question -> generator of a method with fixed options."""

OnStep = Callable[[Question, Step], None]
"""Function that is called with each step of a question, as soon as the step has its result."""

_Key = tuple[int, bool, tuple[float, ...]]
"""Place of a request among those of its question: its wave, whether it waits for a service, and the numbers that lead to it."""


@dataclass(slots=True)
class _OpenQuestion:
    """The state of an open question.

    Attributes:
        failed: key of the request with the first error; beyond all keys if there is none.
        n_pending: number of requests without results.
    """

    question: Question
    steps: list[tuple[_Key, Step]] = field(default_factory=list)
    answer: Answer | None = None
    error: IdxError | None = None
    failed: _Key = (1 << 62, True, ())
    n_pending: int = 0
    started: float = field(default_factory=time.monotonic)

    def fail(self, key: _Key, error: IdxError) -> None:
        """Keep the error of a request, or of the generator before it, unless an earlier place has failed."""
        if key < self.failed:
            self.error, self.failed = error, key

    @property
    def last(self) -> _Key:
        """Key before which steps count: after an error, the rest of its wave does, and what would follow is given up."""
        wave, waits, _ = self.failed
        return (wave, True, (math.inf,)) if waits else self.failed


@dataclass(slots=True)
class _Branch:
    """A running generator: that of a question, or one that another gathers.

    Attributes:
        place: numbers of the requests and branches that lead here.
        name: numbers of the gathers and branches that lead here, for seeds.
        wave: the number of requests that have been served one after another on the way here.
        parent: the branch that waits for it, and its number there; None: the question's own.
        n_requests, n_gathers, n_sampled: numbers of requests, of gathers and of sampling calls with a derived seed so far.
        request: the last request to a service.
        results, n_open: results of the gathered branches, and number of those without result.
    """

    state: _OpenQuestion
    run: Run[Any]
    place: tuple[int, ...] = ()
    name: str = ""
    wave: int = 0
    parent: tuple[_Branch, int] | None = None
    n_requests: int = 0
    n_gathers: int = 0
    n_sampled: int = 0
    request: Request = field(init=False)
    results: list[Any] = field(default_factory=list)
    n_open: int = 0

    def key(self, *, waits: bool) -> _Key:
        """Return the key of the last request, which waits for a service or does not."""
        return (self.wave, waits, (*self.place, self.n_requests))


def execute(
    ask: Ask, questions: Iterable[Question], services: Services, *, in_flight: int = 64, seed: int = 0, on_step: OnStep | None = None
) -> Iterator[Prediction]:
    """Yield a prediction for each question as it finishes.

    If the method refuses a question, or one of its requests fails, the prediction has an ``error``. The other questions continue.

    Args:
        ask: the method with fixed options.
        questions: the questions; each is taken when there is room for it.
        services: models and searcher.
        in_flight: maximum number of concurrent questions.
        seed: the run's seed; the seeds of sampling calls without a seed are derived from it.
        on_step: called with each step as its result comes; an exception that it raises ends all questions.

    Raises:
        UnknownNameError: the method calls a role that has no model.
        ValueError: ``in_flight`` is less than 1.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one question must be open")
    waiting, execution = iter(questions), _Execution(services, seed, on_step)
    try:
        while True:
            while execution.finished:
                yield _to_prediction(execution.finished.popleft())
            while len(execution.runs) < in_flight and not execution.finished and (question := next(waiting, None)) is not None:
                execution.open(question, ask(replace_surrogates(question.text)))
            if not execution.finished:
                if not execution.runs:
                    return
                execution.wait()
    finally:
        execution.close()


class _Execution:
    """The open questions; must be closed.

    Attributes:
        runs: id of the state of an open question -> its generator.
        finished: questions that have ended, in the order of their ends.
    """

    def __init__(self, services: Services, seed: int, on_step: OnStep | None) -> None:
        self._dispatcher, self._seed, self._on_step = Dispatcher(services), seed, on_step
        self._todo = deque[tuple[_Branch, Any]]()  # branches that can go on, each with the result for it
        self.runs = dict[int, Run[Answer]]()
        self.finished = deque[_OpenQuestion]()

    def open(self, question: Question, run: Run[Answer]) -> None:
        """Start a question."""
        state = _OpenQuestion(question)
        self.runs[id(state)] = run
        self._go_on(_Branch(state, run), None)

    def wait(self) -> None:
        """Wait for a result, and go on with all that have one."""
        for branch, outcome in self._dispatcher.collect():
            key = branch.key(waits=True)
            self._record(branch, branch.request, key, outcome)
            branch.state.n_pending -= 1
            branch.wave += 1
            if outcome.error is not None:
                branch.state.fail(key, outcome.error)
            self._go_on(branch, outcome.result, stops=outcome.error is not None)

    def close(self) -> None:
        """Stop; calls that are running are not awaited."""
        self._dispatcher.close()
        for run in self.runs.values():
            run.close()

    def _go_on(self, branch: _Branch, result: Any, *, stops: bool = False) -> None:  # noqa: ANN401 - None at first
        """Continue a branch, and those that wait for it, until all wait for services; the last result ends the question."""
        state = branch.state
        if not stops:
            self._todo.append((branch, result))
        while self._todo:
            ready, given = self._todo.popleft()
            if self._run(ready, given) and ready.key(waits=True) < state.last:
                self._dispatcher.submit(ready, ready.request)
                state.n_pending += 1
        if not state.n_pending:
            self.runs.pop(id(state)).close()
            self.finished.append(state)

    def _run(self, branch: _Branch, result: Any) -> bool:  # noqa: ANN401 - None at first
        """Run a branch until it waits for a service; False if it waits for branches of its own, or has ended."""
        try:
            while True:
                request = branch.run.send(result)
                branch.n_requests += 1
                if isinstance(request, Gather):
                    if self._split(branch, request):
                        return False
                    result = []
                elif isinstance(request, IMMEDIATE):
                    outcome = self._dispatcher.serve_immediately(request)
                    self._record(branch, request, branch.key(waits=False), outcome)
                    result = outcome.result
                else:
                    branch.request = self._set_seed(request, branch)
                    return True
        except StopIteration as stop:
            self._end(branch, stop.value)
        except IdxError as error:
            branch.n_requests += 1
            branch.state.fail(branch.key(waits=False), error)
        return False

    def _split(self, branch: _Branch, request: Gather) -> bool:
        """Start the branches of a gather; False if there are none."""
        for number, run in enumerate(request.runs):
            name = f"{branch.name}{branch.n_gathers}.{number}."
            self._todo.append(
                (_Branch(branch.state, run, (*branch.place, branch.n_requests, number), name, branch.wave, (branch, number)), None)
            )
        branch.n_gathers += 1
        branch.n_open, branch.results = len(request.runs), [None] * len(request.runs)
        return bool(request.runs)

    def _end(self, branch: _Branch, value: Any) -> None:  # noqa: ANN401 - an answer, or whatever a gathered run returns
        if branch.parent is None:
            branch.state.answer = value
            return
        parent, number = branch.parent
        parent.results[number] = value
        parent.wave = max(parent.wave, branch.wave)
        parent.n_open -= 1
        if not parent.n_open:
            self._todo.append((parent, parent.results))

    def _set_seed(self, request: Request, branch: _Branch) -> Request:
        """Give a sampling call without a seed one, derived from the run's seed, the question's id and the call's place in the question."""
        if not isinstance(request, Generate) or request.decoding.is_greedy or request.decoding.seed is not None:
            return request
        material = f"{self._seed}\n{branch.state.question.id}\n{branch.name}{branch.n_sampled}"
        branch.n_sampled += 1
        own = int.from_bytes(hashlib.sha256(material.encode()).digest()[:4], "big") >> 1  # 31 bits, which every endpoint accepts
        return dataclasses.replace(request, decoding=dataclasses.replace(request.decoding, seed=own))

    def _record(self, branch: _Branch, request: Request, key: _Key, outcome: Outcome) -> None:
        """Append a step to its question."""
        shown = {**outcome._asdict(), "error": None if outcome.error is None else _error_text(outcome.error)}
        step = Step(wave=branch.wave, request=request, **shown)
        branch.state.steps.append((key, step))
        if self._on_step is not None:
            self._on_step(branch.state.question, step)


def _error_text(error: IdxError) -> str:
    return f"{type(error).__name__}: {error}"


def _to_prediction(state: _OpenQuestion) -> Prediction:
    answer = Answer("") if state.answer is None or state.error else state.answer
    steps = tuple(step for key, step in sorted(state.steps, key=lambda step: step[0]) if key < state.last)
    degraded = [fallback for step in steps for fallback in _degraded(step)]
    service = sum(step.seconds for step in steps if not step.is_reused)
    return Prediction(
        id=state.question.id,
        question=state.question.text,
        answer=answer.text,
        passages=answer.passages,
        detail=answer.detail,
        steps=steps,
        cost=_cost(steps),
        timing=Timing(seconds=time.monotonic() - state.started, service=service, reused=sum(step.is_reused for step in steps)),
        degraded=tuple(dict.fromkeys(degraded)),
        error=None if state.error is None else _error_text(state.error),
    )


def _degraded(step: Step) -> list[str]:
    results = step.result if isinstance(step.result, tuple) else (step.result,)
    return [fallback for result in results for fallback in getattr(result, "degraded", ())]


def _cost(steps: tuple[Step, ...]) -> Cost:
    served = [step for step in steps if not isinstance(step.request, IMMEDIATE)]
    searches = [step.request for step in steps if isinstance(step.request, Retrieve)]
    return Cost(
        calls=sum(isinstance(step.request, Call) for step in steps),
        prompt_tokens=sum(step.prompt_tokens for step in steps),
        completion_tokens=sum(step.completion_tokens for step in steps),
        searches=len(searches),
        queries=sum(len(search.queries) for search in searches),
        waves=max((step.wave + 1 for step in served), default=0),
    )

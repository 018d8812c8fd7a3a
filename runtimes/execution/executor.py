"""Concurrent execution of a method over many questions.

Each open question runs a generator of the method, which yields requests. Whoever's result has come goes on at once: no question waits for
another, and no branch of a question (``gather``) for its neighbours. A finished question makes room for the next. The outcome of a question
depends neither on the other open questions nor on time: steps and derived seeds are numbered by their place in the question.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wikidx.base.errors import IdxError
from wikidx.runtimes.execution.results import Outcome, Prediction, Step
from wikidx.runtimes.execution.services import Dispatcher, Services, error_text
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import IMMEDIATE, Gather, Request, Run
from wikidx.runtimes.questions import Question

_Key = tuple[int, bool, tuple[float, ...]]
"""Place of a request among those of its question: its depth, whether it waits for a service, and the numbers that lead to it."""


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
    error: str | None = None
    failed: _Key = (1 << 62, True, ())
    n_pending: int = 0
    started: float = field(default_factory=time.monotonic)

    def fail(self, key: _Key, error: str) -> None:
        """Keep the error of a request, or of the generator before it, unless an earlier place has failed."""
        if key < self.failed:
            self.error, self.failed = error, key

    @property
    def last(self) -> _Key:
        """Key before which steps count: after an error, the rest of its depth does, and what would follow is given up."""
        depth, waits, _ = self.failed
        return (depth, True, (math.inf,)) if waits else self.failed


@dataclass(slots=True)
class _Branch:
    """A running generator: that of a question, or one that another gathers.

    Attributes:
        place: numbers of the requests and branches that lead here.
        name: numbers of the gathers and branches that lead here, for seeds.
        depth: number of requests that have been served one after another on the way here.
        parent: the branch that waits for it, and its number there; None: the question's own.
        n_requests, n_gathers, n_sampled: numbers of requests, of gathers and of sampling calls with a derived seed so far.
        request: the last request to a service.
        results, n_open: results of the gathered branches, and number of those without result.
    """

    state: _OpenQuestion
    run: Run[Any]
    place: tuple[int, ...] = ()
    name: str = ""
    depth: int = 0
    parent: tuple[_Branch, int] | None = None
    n_requests: int = 0
    n_gathers: int = 0
    n_sampled: int = 0
    request: Request = field(init=False)
    results: list[Any] = field(default_factory=list)
    n_open: int = 0

    def key(self, *, waits: bool) -> _Key:
        """Return the key of the last request, which waits for a service or does not."""
        return (self.depth, waits, (*self.place, self.n_requests))


def execute(
    ask: Callable[[str], Run[Answer]],
    questions: Iterable[Question],
    services: Services,
    *,
    in_flight: int = 64,
    seed: int = 0,
    on_step: Callable[[Question, Step], None] | None = None,
) -> Iterator[Prediction]:
    """Yield a prediction for each question as it finishes.

    If the method refuses a question, or one of its requests fails, the prediction has an ``error``. The other questions continue.

    Args:
        ask: function: text of a question -> generator of a method with fixed options.
        questions: the questions; each is taken when there is room for it.
        services: models and searcher.
        in_flight: maximum number of concurrent questions.
        seed: the run's seed; the seeds of sampling calls without a seed are derived from it.
        on_step: called with each step of a question as soon as it has its result; an exception that it raises ends all questions.

    Raises:
        UnknownNameError: the method calls a role that has no model.
        ValueError: ``in_flight`` is less than 1.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one question must be open")
    waiting = iter(questions)
    with contextlib.closing(_Execution(services, seed, on_step)) as execution:
        while True:
            while execution.finished:
                yield _to_prediction(execution.finished.popleft())
            while len(execution.runs) < in_flight and not execution.finished and (question := next(waiting, None)) is not None:
                execution.open(question, ask(replace_surrogates(question.text)))
            if not execution.finished:
                if not execution.runs:
                    return
                execution.wait()


class _Execution:
    """The open questions; must be closed.

    Attributes:
        runs: id of the state of an open question -> its generator.
        finished: questions that have ended, in the order of their ends.
    """

    def __init__(self, services: Services, seed: int, on_step: Callable[[Question, Step], None] | None) -> None:
        self._dispatcher, self._seed, self._on_step = Dispatcher(services), seed, on_step
        self._todo = deque[tuple[_Branch, Any]]()  # branches that can go on, each with the result for it
        self.runs = dict[int, Run[Answer]]()
        self.finished = deque[_OpenQuestion]()

    def open(self, question: Question, run: Run[Answer]) -> None:
        """Start a question."""
        state = _OpenQuestion(question)
        self.runs[id(state)] = run
        self._todo.append((_Branch(state, run), None))
        self._go_on(state)

    def wait(self) -> None:
        """Wait for a result, and go on with all that have one."""
        for branch, outcome in self._dispatcher.collect():
            key = branch.key(waits=True)
            self._record(branch, branch.request, key, outcome)
            branch.state.n_pending -= 1
            branch.depth += 1
            if outcome.error is None:
                self._todo.append((branch, outcome.result))
            else:
                branch.state.fail(key, outcome.error)
            self._go_on(branch.state)

    def close(self) -> None:
        """Stop; calls that are running are not awaited."""
        self._dispatcher.close()
        for run in self.runs.values():
            run.close()

    def _go_on(self, state: _OpenQuestion) -> None:
        """Continue the branches of a question until all wait for services; the last result ends the question."""
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
            branch.state.fail(branch.key(waits=False), error_text(error))
        return False

    def _split(self, branch: _Branch, request: Gather) -> bool:
        """Start the branches of a gather; False if there are none."""
        for number, run in enumerate(request.runs):
            name = f"{branch.name}{branch.n_gathers}.{number}."
            child = _Branch(branch.state, run, (*branch.place, branch.n_requests, number), name, branch.depth, (branch, number))
            self._todo.append((child, None))
        branch.n_gathers += 1
        branch.n_open, branch.results = len(request.runs), [None] * len(request.runs)
        return bool(request.runs)

    def _end(self, branch: _Branch, value: Any) -> None:  # noqa: ANN401 - an answer, or whatever a gathered run returns
        if branch.parent is None:
            branch.state.answer = value
            return
        parent, number = branch.parent
        parent.results[number] = value
        parent.depth = max(parent.depth, branch.depth)
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
        step = Step(depth=branch.depth, request=request, **vars(outcome))
        branch.state.steps.append((key, step))
        if self._on_step is not None:
            self._on_step(branch.state.question, step)


def _to_prediction(state: _OpenQuestion) -> Prediction:
    answer = Answer("") if state.answer is None or state.error else state.answer
    return Prediction(
        id=state.question.id,
        question=state.question.text,
        answer=answer.text,
        passages=answer.passages,
        detail=answer.detail,
        steps=tuple(step for key, step in sorted(state.steps, key=lambda step: step[0]) if key < state.last),
        error=state.error,
        seconds=time.monotonic() - state.started,
    )

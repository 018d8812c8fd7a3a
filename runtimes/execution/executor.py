"""Concurrent execution of a method over many questions.

Each open question is a task of an event loop, and so is each branch of a question (``gather``). Whoever's result has come goes on at once:
no question waits for another, and no branch for its neighbours. A finished question makes room for the next. The outcome of a question
depends neither on the other open questions nor on time: steps and derived seeds are numbered by their place in the question.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import inspect
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

from wikidx.base.errors import IdxError, InputError, UnknownNameError
from wikidx.runtimes.execution.dispatching import Dispatcher, Services, error_text
from wikidx.runtimes.execution.forgotten import Forgotten, watch
from wikidx.runtimes.execution.results import Outcome, Prediction, Step
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import HERE, IMMEDIATE, OLD_METHOD, Request
from wikidx.runtimes.questions import Question

T = TypeVar("T")
Ask = Callable[[str], Coroutine[Any, Any, Answer]]
"""Function: text of a question -> coroutine of a method with fixed options."""

OnStep = Callable[[Question, Step], None]

_Key = tuple[int, bool, tuple[float, ...]]
"""Place of a request among those of its question: its depth, whether it waits for a service, and the numbers that lead to it."""

_NEVER: _Key = (1 << 62, True, ())


def execute(
    ask: Ask, questions: Iterable[Question], services: Services, *, in_flight: int = 64, seed: int = 0, on_step: OnStep | None = None
) -> Iterator[Prediction]:
    """Yield a prediction for each question as it finishes; see ``predict``, which this runs in an event loop of its own."""
    predictions = predict(ask, questions, services, in_flight=in_flight, seed=seed, on_step=on_step)

    async def following() -> Prediction | None:
        return await anext(predictions, None)

    with _own_loop() as run:
        try:
            while (prediction := run(following())) is not None:
                yield prediction
        except GeneratorExit:
            run(predictions.aclose())
            raise


@contextlib.contextmanager
def _own_loop() -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Yield a function that runs a coroutine in an event loop, whose tasks are cancelled at the end.

    If this thread has a running loop, as in a notebook, another thread runs it.
    """
    if not _has_loop():
        with asyncio.Runner() as runner:
            yield runner.get_loop().run_until_complete
        return
    with ThreadPoolExecutor(1, "execute") as thread:
        runner = asyncio.Runner()
        loop = thread.submit(runner.get_loop).result()

        def run(work: Coroutine[Any, Any, T]) -> T:
            result = thread.submit(loop.run_until_complete, work)
            try:
                return result.result()
            except KeyboardInterrupt:
                loop.call_soon_threadsafe(loop.stop)
                raise

        try:
            yield run
        finally:
            thread.submit(runner.close).result()


def _has_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop().is_running()
    return False


async def predict(
    ask: Ask, questions: Iterable[Question], services: Services, *, in_flight: int = 64, seed: int = 0, on_step: OnStep | None = None
) -> AsyncGenerator[Prediction, None]:
    """Yield a prediction for each question as it finishes.

    If the method refuses a question, or does not catch the error of a request, the prediction has an ``error``. The other questions
    continue.

    Args:
        ask: function: text of a question -> coroutine of a method with fixed options.
        questions: the questions; each is taken when there is room for it.
        services: models and searcher.
        in_flight: maximum number of concurrent questions.
        seed: the run's seed; the seeds of sampling calls without a seed are derived from it.
        on_step: called with each step of a question as soon as it has its result; an exception that it raises ends all questions.

    Raises:
        InputError: ``ask`` returns no coroutine.
        UnknownNameError: the method calls a role that has no model.
        ValueError: ``in_flight`` is less than 1.
        Exception: the method raised it; errors of the project and forgotten awaits are those of a question.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one question must be open")
    waiting, execution = iter(questions), _Execution(services, seed, on_step)
    try:
        while True:
            while len(execution.open) < in_flight and (question := next(waiting, None)) is not None:
                execution.start(question, ask(replace_surrogates(question.text)))
            if not execution.open and execution.finished.empty():
                return
            yield await execution.next_prediction()
    finally:
        await execution.close()


class _Execution:
    """The open questions; must be closed.

    Attributes:
        open: the task of each open question, and the coroutine of its method.
        dispatcher: service of requests.
        finished: predictions, and exceptions that end all questions.
    """

    def __init__(self, services: Services, seed: int, on_step: OnStep | None) -> None:
        watch()
        self.seed, self.on_step = seed, on_step
        self.finished = asyncio.Queue[Prediction | BaseException]()
        self.dispatcher = Dispatcher(services, self.finished.put_nowait)
        self.open = dict[asyncio.Task[None], Coroutine[Any, Any, Answer]]()

    def start(self, question: Question, run: Coroutine[Any, Any, Answer]) -> None:
        """Start a question."""
        if not inspect.iscoroutine(run):
            raise InputError(OLD_METHOD.format(f"the method returns a {type(run).__name__}"))
        self.open[asyncio.create_task(self._answer(question, run))] = run

    async def next_prediction(self) -> Prediction:
        """Return the prediction of a question that has ended; raise the exception that ends all."""
        finished = await self.finished.get()
        if isinstance(finished, BaseException):
            raise finished
        return finished

    async def end(self, error: BaseException) -> NoReturn:
        """End all questions with an error; this never returns, but is cancelled."""
        self.finished.put_nowait(error)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def close(self) -> None:
        """Stop; calls that are running are not awaited."""
        self.dispatcher.close()
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)
        for run in self.open.values():
            run.close()

    async def _answer(self, question: Question, run: Coroutine[Any, Any, Answer]) -> None:
        """Answer a question."""
        state, error = _OpenQuestion(question, self, Forgotten(run)), None
        try:
            answer = await _Branch(state).run(run)
            state.forgotten.check(answer)
        except IdxError as failed:
            answer, error = Answer(""), error_text(failed)
        except Exception as failed:
            if not (text := state.forgotten.explain(failed)):
                return self.finished.put_nowait(failed)
            answer, error = Answer(""), text
        current = asyncio.current_task()
        assert current is not None
        del self.open[current]
        self.finished.put_nowait(state.prediction(answer, error))


@dataclass(slots=True)
class _OpenQuestion:
    """The state of an open question: its steps, each with its place, and the coroutines that the method forgot to await."""

    question: Question
    execution: _Execution
    forgotten: Forgotten
    steps: list[tuple[_Key, Step]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def prediction(self, answer: Answer, error: str | None) -> Prediction:
        """Return the prediction."""
        return Prediction(
            id=self.question.id,
            question=self.question.text,
            answer=answer.text,
            passages=answer.passages,
            detail=answer.detail,
            steps=tuple(step for _, step in sorted(self.steps, key=lambda step: step[0])),
            error=error,
            seconds=time.monotonic() - self.started,
        )


class _GivenUp(BaseException):
    """The end of a branch whose requests count no more, because another has failed before them."""


@dataclass(slots=True)
class _Scope:
    """The branches that are gathered together.

    Attributes:
        above: the scope that they are in.
        place: numbers of the requests and branches that lead here.
        failed: key of the request with the first error, or of where the branch raised one; beyond all keys if there is none.
        error: that error.
    """

    above: _Scope | None
    place: tuple[int, ...]
    failed: _Key = _NEVER
    error: Exception | None = None

    def fail(self, key: _Key, error: Exception) -> None:
        """Keep the error of a branch, unless an earlier place has failed."""
        if key < self.failed:
            self.failed, self.error = key, error

    @property
    def last(self) -> _Key:
        """Key before which steps count: after an error, the rest of its depth does, and what would follow is given up."""
        depth, waits, _ = self.failed
        own: _Key = (depth, True, (math.inf,)) if waits else self.failed
        return min(own, self.above.last) if self.above else own

    def counts(self, key: _Key) -> bool:
        """Return whether a step counts: false for one of these branches at the key ``last`` or after it."""
        return key < self.last or key[2][: len(self.place)] != self.place


@dataclass(slots=True)
class _Branch:
    """The place of a question's method, or of a branch that it gathers: ``Here``.

    Attributes:
        scope: the branches beside this one; None: the question's own.
        place: numbers of the requests and branches that lead here.
        name: numbers of the gathers and branches that lead here, for seeds.
        depth: number of requests that have been served one after another on the way here.
        n_requests, n_gathers, n_sampled: numbers of requests, of gathers and of sampling calls with a derived seed so far.
        failed: the last error that a request or a gather has raised, and its key.
    """

    state: _OpenQuestion
    scope: _Scope | None = None
    place: tuple[int, ...] = ()
    name: str = ""
    depth: int = 0
    n_requests: int = 0
    n_gathers: int = 0
    n_sampled: int = 0
    failed: tuple[Exception | None, _Key] = (None, _NEVER)
    _task: asyncio.Task[Any] | None = None

    async def run(self, run: Awaitable[T]) -> T:
        """Run a coroutine here."""
        HERE.set(self)
        self._task = asyncio.current_task()
        try:
            return await run
        except Exception as error:
            if self.scope is not None:
                self.n_requests += 1
                self.scope.fail(self.failed[1] if error is self.failed[0] else self._key(waits=False), error)
            raise
        finally:
            self._task = None  # whose context holds this branch

    async def send(self, request: Request) -> Any:  # noqa: ANN401 - of the kind that the request says
        """Serve a request."""
        self._count_request()
        execution = self.state.execution
        key = self._key(waits=not isinstance(request, IMMEDIATE))
        if self.scope is not None and key >= self.scope.last:
            raise _GivenUp
        try:
            if isinstance(request, IMMEDIATE):
                outcome, error = execution.dispatcher.serve_immediately(request), None
            else:
                request = self._set_seed(request)
                outcome, error = await execution.dispatcher.ask(request)
        except UnknownNameError as unknown:
            await execution.end(unknown)
        self._record(key, request, outcome)
        self.depth += key[1]
        if error is not None:
            self.failed = (error, key)
            raise error
        return outcome.result

    async def gather(self, runs: Sequence[Awaitable[T]]) -> list[T]:
        """Run branches, each as a task. If one fails, those of a later place are given up, and their steps with them."""
        self._count_request()
        scope = _Scope(self.scope, (*self.place, self.n_requests))
        names = [f"{self.name}{self.n_gathers}.{number}." for number in range(len(runs))]
        branches = [_Branch(self.state, scope, (*scope.place, number), name, self.depth) for number, name in enumerate(names)]
        self.n_gathers += 1
        tasks = [branch.run(run) for branch, run in zip(branches, runs, strict=True)]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for run in runs:
                if inspect.iscoroutine(run):
                    run.close()  # one that was cancelled before it began
        if scope.error is not None:
            self._drop(scope)
            self.depth = scope.failed[0] + scope.failed[1]
            self.failed = (scope.error, scope.failed)
            raise scope.error
        if given_up := next((result for result in results if isinstance(result, BaseException)), None):
            raise given_up
        self.depth = max([self.depth, *(branch.depth for branch in branches)])
        return cast("list[T]", results)

    def _count_request(self) -> None:
        if asyncio.current_task() is not self._task:
            raise InputError(
                f"the method {self.state.forgotten.method} sends requests in a task of its own: run them side by side by 'gather' of "
                "wikidx.runtimes.methods.requests, and limit their time by asyncio.timeout"
            )
        self.n_requests += 1

    def _key(self, *, waits: bool) -> _Key:
        """Return the key of the last request, which waits for a service or does not."""
        return (self.depth, waits, (*self.place, self.n_requests))

    def _set_seed(self, request: Request) -> Request:
        """Give a sampling call without a seed one, derived from the run's seed, the question's id and the call's place in the question."""
        if not isinstance(request, Generate) or request.decoding.is_greedy or request.decoding.seed is not None:
            return request
        material = f"{self.state.execution.seed}\n{self.state.question.id}\n{self.name}{self.n_sampled}"
        self.n_sampled += 1
        own = int.from_bytes(hashlib.sha256(material.encode()).digest()[:4], "big") >> 1  # 31 bits, which every endpoint accepts
        return dataclasses.replace(request, decoding=dataclasses.replace(request.decoding, seed=own))

    def _record(self, key: _Key, request: Request, outcome: Outcome) -> None:
        """Append a step to the question."""
        execution, step = self.state.execution, Step(depth=self.depth, request=request, **vars(outcome))
        self.state.steps.append((key, step))
        if execution.on_step is not None:
            try:
                execution.on_step(self.state.question, step)
            except BaseException as error:  # noqa: BLE001 - ends all questions, and no method catches it
                execution.finished.put_nowait(error)

    def _drop(self, scope: _Scope) -> None:
        """Drop the steps of branches that do not count."""
        self.state.steps[:] = [(key, step) for key, step in self.state.steps if scope.counts(key)]

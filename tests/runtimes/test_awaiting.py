"""Methods as coroutines: errors that they catch, awaits that they forget, foreign code that they await, and how their tasks end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.runtimes.test_executor import QUESTIONS, CountingLLM, CountingSearcher, run_all
from wikidx.base.errors import InputError
from wikidx.base.plugins import plug
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import Ask, execute, predict
from wikidx.runtimes.execution.results import Prediction
from wikidx.runtimes.llms.base import Call, Deliver, Reply
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.direct import METHOD
from wikidx.runtimes.methods.requests import gather, generate, label, note, retrieve, sample


def ask_one(ask: Ask) -> Prediction:
    (prediction,) = run_all(ask, CountingLLM(), questions=QUESTIONS[:1])
    return prediction


def trace(prediction: Prediction) -> list[tuple[int, str, tuple[str, ...], bool]]:
    """Return depth, prompt or queries, labels and success of each step."""
    return [
        (
            step.depth,
            str(getattr(step.request, "prompt", None) or getattr(step.request, "queries", "")),
            step.request.path,
            step.error is None,
        )
        for step in prediction.steps
    ]


def test_a_method_can_catch_the_error_of_a_request_and_of_a_tool() -> None:
    async def tool() -> str:
        await asyncio.sleep(0)
        raise ConnectionError("the tool is down")

    async def ask(question: str) -> Answer:
        said = ""
        try:
            await generate("fail")
        except LLMError as error:
            said += str(error)
        try:
            await tool()
        except ConnectionError as error:
            said += f"; {error}"
        return Answer(said + (await generate("go on")).text)

    prediction = ask_one(ask)
    assert (prediction.error, prediction.answer) == (None, "made to fail: fail; the tool is downgo on!")
    assert trace(prediction) == [(0, "fail", (), False), (1, "go on", (), True)]


def test_a_tool_that_raises_uncaught_ends_the_run_as_it_is() -> None:
    async def ask(question: str) -> Answer:
        await asyncio.sleep(0)
        raise ConnectionError("the tool is down")

    with pytest.raises(ConnectionError, match="the tool is down"):
        ask_one(ask)


@pytest.mark.parametrize("slow", ["a", "b", "c"])
def test_a_failed_gather_is_caught_with_the_same_trace_whatever_is_slow(slow: str) -> None:
    """Of three branches the second fails at its second request; what the others ask at a later depth does not count."""

    async def branch(name: str) -> str:
        for step in range(4):
            if name == slow:
                await asyncio.sleep(0.03)
            await generate(f"{name} {'fail' if name == 'b' and step == 1 else step}")
        return name

    async def ask(question: str) -> Answer:
        with label("branches"):
            try:
                await gather(*map(branch, "abc"))
            except LLMError as error:
                await note(str(error))
        drawn = await sample("rest", 1, Decoding(temperature=1.0))
        return Answer(drawn[0].text)

    prediction = ask_one(ask)
    inner = ("branches",)
    assert [step[:3] for step in trace(prediction)] == [
        *((0, f"{name} 0", inner) for name in "abc"),
        *((1, f"{name} {'fail' if name == 'b' else 1}", inner) for name in "abc"),
        (2, "", inner),
        (2, "rest", ()),
    ]
    assert prediction == ask_one(ask)


def test_the_first_of_two_failed_branches_by_place_is_raised() -> None:
    async def branch(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await generate(f"fail {name}")

    async def ask(question: str) -> Answer:
        await gather(branch("a", 0.05), branch("b", 0))
        return Answer("")

    prediction = ask_one(ask)
    assert prediction.error == "LLMError: made to fail: fail a"
    assert [step[1] for step in trace(prediction)] == ["fail a", "fail b"]


async def forgets_a_request(question: str) -> Answer:
    note("lost")  # type: ignore[unused-coroutine]
    return Answer((await generate(question)).text)


async def uses_a_coroutine(question: str) -> Answer:
    return Answer(generate(question).text)  # type: ignore[attr-defined]


async def iterates_over_a_coroutine(question: str) -> Answer:
    passages = retrieve(question, 3)
    return Answer(" ".join(passage.text for passage in passages))  # type: ignore[attr-defined]


async def returns_a_coroutine(question: str) -> Answer:
    return Answer(generate(question))  # type: ignore[arg-type]


async def forgets_its_own_part(question: str) -> Answer:
    async def part() -> None:
        await generate(question)

    await gather(*[generate(question)])
    part()  # type: ignore[unused-coroutine]
    return Answer("")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("method", "name"),
    [
        (forgets_a_request, "note"),
        (uses_a_coroutine, "generate"),
        (iterates_over_a_coroutine, "retrieve"),
        (returns_a_coroutine, "generate"),
        (forgets_its_own_part, "forgets_its_own_part.<locals>.part"),
    ],
)
def test_a_forgotten_await_is_an_error_that_names_the_method(method: Ask, name: str) -> None:
    prediction = ask_one(method)
    said = f"InputError: the method {method.__name__} (test_awaiting.py) forgets to await '{name}': write 'await' before the call"
    assert (prediction.error, prediction.answer) == (said, "")


def test_what_is_no_answer_is_refused() -> None:
    async def ask(question: str) -> Answer:
        return "text"  # type: ignore[return-value]

    error = ask_one(ask).error
    assert error
    assert error.endswith("(test_awaiting.py) returns 'text', not an Answer with a text")


def test_requests_side_by_side_but_by_gather_are_refused() -> None:
    async def ask(question: str) -> Answer:
        texts = await asyncio.gather(generate("a"), generate("b"))
        return Answer(texts[0].text)

    error = ask_one(ask).error
    assert error
    assert "sends requests in a task of its own: run them side by side by 'gather' of wikidx.runtimes.methods.requests" in error


def test_a_generator_function_is_refused_in_one_line(tmp_path: Any) -> None:  # noqa: ANN401 - a Path
    def ask(question: str) -> Iterator[Any]:
        yield question

    with pytest.raises(InputError, match=r"the method returns a generator: methods are 'async def' functions now; write 'await' for"):
        ask_one(ask)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"the method 'direct' is a generator function: methods are 'async def'"):
        type(METHOD)(**{name: getattr(METHOD, name) for name in ("name", "summary", "source", "roles", "options")}, run=ask)  # type: ignore[arg-type]
    (tmp_path / "old.py").write_text("from wikidx.runtimes.methods.requests import Run, generate\n")
    with pytest.raises(
        InputError, match=r"old.py fails, line 1: InputError: there is no 'Run' any more: methods are 'async def'"
    ) as failed:
        plug(f"{tmp_path / 'old.py'}:OLD")
    assert "\n" not in str(failed.value)


def test_a_method_outside_execute_is_told_who_runs_it() -> None:
    with pytest.raises(InputError, match="a method is run by execute"):
        asyncio.run(generate("a"))


def test_a_method_s_time_limit_costs_its_request_alone() -> None:
    """Two questions wait for the same reply; one gives up."""
    released = threading.Event()

    class Slow(CountingLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            assert released.wait(10)
            return super().run(calls, deliver)

    async def ask(question: str) -> Answer:
        try:
            async with asyncio.timeout(0.05 if question == "question 0" else None):
                return Answer((await generate("same")).text)
        except TimeoutError:
            released.set()
            return Answer("given up")

    predictions = run_all(ask, Slow(), questions=QUESTIONS[:2])
    assert [prediction.answer for prediction in predictions] == ["given up", "same!"]


class Stuck(CountingLLM):
    """A model that works until ``release``, and says when it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.release = threading.Event(), threading.Event()

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        self.begun.set()
        assert self.release.wait(10)
        return super().run(calls, deliver)


@pytest.mark.parametrize("asks_again", [False, True])
@pytest.mark.parametrize("stop", ["cancel", "close"])
def test_who_stops_waits_for_no_call_and_methods_clean_up(stop: str, asks_again: bool) -> None:
    """A method that asks again in its clean-up gets no answer, and nobody waits for it."""
    llm, cleaned = Stuck(), list[str]()

    async def branch(name: str) -> None:
        try:
            await generate(name)
        finally:
            cleaned.append(name)
            if asks_again:
                await gather(generate(f"{name} again"), retrieve(name, 1))

    async def ask(question: str) -> Answer:
        if question != "question 0":
            await gather(branch("a"), branch("b"))
        return Answer("at once")

    services = Services(llms={"answer": llm}, searcher=CountingSearcher())

    async def cancelled() -> None:
        async def consume() -> None:
            async for _ in predict(ask, QUESTIONS[:2], services):
                pass

        task = asyncio.create_task(consume())
        await asyncio.to_thread(llm.begun.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    started = time.monotonic()
    if stop == "cancel":
        asyncio.run(cancelled())
    else:
        running = execute(ask, QUESTIONS[:2], services)
        assert next(running).answer == "at once"
        running.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 5
    assert sorted(cleaned) in (["a", "b"], [])
    assert stop == "close" or cleaned
    llm.release.set()


def test_questions_are_answered_within_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> list[str]:
        return [prediction.answer for prediction in run_all(ask, CountingLLM(), questions=QUESTIONS[:3])]

    async def ask(question: str) -> Answer:
        found = await retrieve(question, 1)
        return Answer(found[0].text)

    assert asyncio.run(cell()) == [f"text of question {number}" for number in range(3)]


def test_foreign_awaits_take_no_batch_apart_nor_hold_it_up() -> None:
    """A tool of one question takes long; the other questions' calls do not wait for it."""
    llm = CountingLLM()

    async def ask(question: str) -> Answer:
        if question == "question 0":
            await asyncio.sleep(0.5)
        for step in range(3):
            await generate(f"{question} {step}")
        return Answer("")

    finished = [one.id for one in execute(ask, QUESTIONS[:4], Services(llms={"answer": llm}, searcher=CountingSearcher()))]
    assert finished[-1] == "q0"
    assert [len(batch) for batch in llm.batches] == [3, 3, 3, 1, 1, 1]

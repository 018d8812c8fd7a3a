"""Nothing waits for what it does not need: questions, branches of a question, parts of a batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.llms.fake_server import Answer as Answered
from tests.runtimes.llms.fake_server import FakeServer, chat, fake_serving
from tests.runtimes.test_executor import QUESTIONS, CountingLLM
from wikidx.base.machine.failures import DeviceLost
from wikidx.retrievers.base import DEFAULTS, Ranking
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.errors import LLMError, Unreachable
from wikidx.runtimes.execution import opening
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher
from wikidx.runtimes.execution.runs import PREDICTIONS
from wikidx.runtimes.llms.base import Call, Capabilities, Deliver, Gen, Generate, Reply
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import gather, generate, retrieve


class SlowLLM(CountingLLM):
    """An endpoint that answers eight calls at a time, and a prompt with "slow" only after ``release``."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Capabilities(seed=True, n=True, concurrency=8)
        self.release = threading.Event()

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        if "slow" in prompt_text(calls[0].prompt):
            assert self.release.wait(10)
        return super().run(calls, deliver)


def test_neither_a_question_nor_a_branch_waits_for_another() -> None:
    """Of two questions one is answered, and a branch of the other takes all its steps, while the first call of the other branch waits."""
    llm = SlowLLM()

    async def branch(text: str) -> str:
        for step in range(3):
            text = (await generate(f"{text} {step}")).text
        if text.startswith("quick"):
            llm.release.set()
        return text

    async def ask(question: str) -> Answer:
        if question == "question 1":
            return Answer(await branch("other"))
        texts = await gather(branch("slow"), branch("quick"))
        return Answer(" ".join(texts))

    predictions = list(execute(ask, QUESTIONS[:2], Services(llms={"answer": llm})))
    assert [prediction.answer for prediction in predictions][-1] == "slow 0! 1! 2! quick 0! 1! 2!"
    assert max(len(batch) for batch in llm.batches) == 1
    slow = next(prediction for prediction in predictions if prediction.id == "q0")
    assert [(step.depth, prompt_text(step.request.prompt)[:5]) for step in slow.steps if isinstance(step.request, Generate)] == [
        (depth, name) for depth in range(3) for name in ("slow ", "quick")
    ]


def test_what_a_batch_has_finished_goes_on_before_its_end() -> None:
    """A question whose reply is delivered early is answered while the model still works on the rest of the batch."""
    finished = threading.Event()

    class InParts(CountingLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            replies = super().run(calls)
            if len(calls) == 2 and deliver:
                deliver({0: replies[0]})
                assert finished.wait(10)
            return replies

    async def ask(question: str) -> Answer:
        return Answer((await generate(question)).text)

    running = execute(ask, QUESTIONS[:2], Services(llms={"answer": InParts()}))
    assert next(running).id == "q0"
    finished.set()
    assert [prediction.id for prediction in running] == ["q1"]


def test_an_endpoint_that_nobody_serves_is_asked_no_further_by_those_that_wait() -> None:
    class Closed(SlowLLM):
        def __init__(self) -> None:
            super().__init__()
            self.capabilities = Capabilities(concurrency=1)

        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            self.batches.append(list(calls))
            return [Unreachable("nobody listens")]

    async def ask(question: str) -> Answer:
        return Answer((await generate(question)).text)

    llm = Closed()
    predictions = list(execute(ask, QUESTIONS[:20], Services(llms={"answer": llm}), in_flight=10))
    assert {prediction.error for prediction in predictions} == {"Unreachable: nobody listens"}
    assert len(llm.batches) == 2


@pytest.mark.parametrize("where", ["at an endpoint", "in this process"])
def test_a_finished_question_is_on_disk_within_a_second_while_another_waits(
    where: str, idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the other comes only when the line is there."""
    waited, out = list[float](), tmp_path / "out"
    (tmp_path / "asked.jsonl").write_text('{"id": "a", "question": "quick?"}\n{"id": "b", "question": "slow?"}\n')

    def wait_for_line() -> None:
        started = time.monotonic()
        while not (lines := (out / PREDICTIONS).read_bytes().splitlines(keepends=True)) and time.monotonic() - started < 10:
            time.sleep(0.005)
        waited.append(time.monotonic() - started)
        (line,) = lines
        assert (json.loads(line)["id"], json.loads(line)["answer"], line[-1:]) == ("a", "quick!", b"\n")

    def answer(path: str, body: dict[str, Any]) -> Answered:
        if is_slow := "slow?" in json.dumps(body):
            wait_for_line()
        return chat("slow!" if is_slow else "quick!")

    class Local(CountingLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            names = ["slow!" if "slow?" in prompt_text(call.prompt) else "quick!" for call in calls]
            replies: list[Reply | LLMError] = [Reply((Gen(text=name),)) for name in names]
            assert (names, deliver is None) == (["quick!", "slow!"], False)
            if deliver:
                deliver({0: replies[0]})
            wait_for_line()
            return replies

    if where == "in this process":
        monkeypatch.setattr(opening, "open_llms", lambda *_: {"answer": Local()})
    with fake_serving(FakeServer(answer)) as url:
        model = f"openai:fake@{url}" if where == "at an endpoint" else "hf:fake/model"
        said = idx("run", "direct", "--questions", tmp_path / "asked.jsonl", "--llm", model, "--out", out)
    assert "2 questions, 2 answered" in said
    assert max(waited) < 1
    assert len((out / PREDICTIONS).read_bytes().splitlines()) == 2


def test_a_lost_gpu_ends_the_run_whether_a_model_or_the_search_was_on_it() -> None:
    class Lost(SlowLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            raise DeviceLost("cuda:0 takes no work any more")

    class LostSearcher(StandInSearcher):
        def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
            raise DeviceLost("cuda:0 takes no work any more")

    async def ask(question: str) -> Answer:
        passages = await retrieve(question, 1)
        return Answer((await generate(passages[0].text)).text)

    for services in (
        Services(llms={"answer": Lost()}, searcher=StandInSearcher()),
        Services(llms={"answer": SlowLLM()}, searcher=LostSearcher()),
    ):
        with pytest.raises(DeviceLost, match="takes no work any more"):
            list(execute(ask, QUESTIONS[:3], services))

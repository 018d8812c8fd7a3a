"""Batches: their number, the executor's overhead, and shared prefixes of their prompts."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import os
import random
import selectors
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Match, Ranking, ScoredPassage, Searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.execution import dispatching
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute, predict
from wikidx.runtimes.execution.rehearsal import stand_in_similarity
from wikidx.runtimes.execution.results import Prediction
from wikidx.runtimes.llms.base import AskYesNo, Call, Deliver, Generate, MeanNll, Mix, Reply, Score
from wikidx.runtimes.llms.prompts import Choice, prompt_text
from wikidx.runtimes.llms.scripted import Scripted, ScriptedLLM
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import Answer, Method
from wikidx.runtimes.methods.requests import Retrieve, ask_yes_no, gather, generate, retrieve
from wikidx.runtimes.questions import Question

N = 200
QUESTIONS = [Question(f"q{number}", f"What is thing number {number}?") for number in range(N)]
DEFAULTS = SearchOptions()


class BatchedLLM(ScriptedLLM):
    """Takes so many seconds a batch; keeps the batches, and how long they took in fact."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(answer)
        self.seconds, self.took = seconds, 0.0
        self.batches: list[list[Call]] = []

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        started = time.monotonic()
        time.sleep(self.seconds)
        self.took += time.monotonic() - started
        self.batches.append(list(calls))
        return super().run(calls, deliver)


def answer(call: Call) -> Scripted:
    """Answer so that methods go far: nothing is known, nothing relevant, every statement supported, no answer sure."""
    if isinstance(call, AskYesNo):
        return 0.1 if call.role == "consistency" else 0.9
    if isinstance(call, MeanNll):
        return 1.0
    if isinstance(call, Score):
        return [1.0 / rank for rank, _ in enumerate(call.texts, 1)]
    if isinstance(call, Generate) and isinstance(call.schema, Choice):
        return [call.schema.texts[0]] * call.n
    assert isinstance(call, Generate | Mix)
    said = {"know": "no", "relevance": "no", "inference": "X is so.\nY is so.\nZ is so."}
    own = f"something of its own: {zlib.crc32(prompt_text(call.prompt).encode())}"
    return [f"{said.get(call.role, own)}{draw or ''}" for draw in range(call.n)]


class FiveSearcher(Searcher):
    """Finds five passages, whatever is searched; counts what it was asked."""

    def __init__(self) -> None:
        self.n_calls = 0

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        self.n_calls += 1
        return [Ranking(_found(row, group[0]) for row in range(5)) for group in groups]


def _found(row: int, query: str) -> ScoredPassage:
    letter = "ABCDE"[row]
    return ScoredPassage(
        Passage(f"{letter} {query}", f"{letter} title", f"Text {zlib.crc32(query.encode())}."), row, 1.0, (Match(query, "bm25", 1, 1.0),)
    )


def run_all(name: str, llm: ScriptedLLM, searcher: FiveSearcher, n: int = N) -> list[Prediction]:
    method = find_method(name)
    return list(
        execute(lambda question: method.run(question, method.options()), QUESTIONS[:n], services_of(method, llm, searcher), in_flight=N)
    )


def services_of(method: Method, llm: ScriptedLLM, searcher: FiveSearcher) -> Services:
    roles = dict.fromkeys(method.roles, llm)
    return Services(llms=roles, searcher=searcher, look_up_title=lambda title: [], similarity=stand_in_similarity)


def test_two_hundred_questions_take_little_more_than_their_waves() -> None:
    """Each has four calls in a chain, 64 are open at once: 16 batches of a model that takes 0.2 s. Five tries: others work, too."""

    async def ask(question: str) -> Answer:
        passages = await retrieve(question, 5)
        for step in range(3):
            await generate(f"{question} {step} {passages[0].text}")
        await gather(*(ask_yes_no(f"{question} {n}") for n in range(5)))
        return Answer("")

    def share() -> float:
        llm = BatchedLLM(seconds=0.2)
        started = time.monotonic()
        assert len(list(execute(ask, QUESTIONS, Services(llms={"answer": llm}, searcher=FiveSearcher()), in_flight=64))) == N
        took = time.monotonic() - started
        assert len(llm.batches) == 16
        return took / llm.took

    assert any(share() < 1.3 for _ in range(5))


@pytest.mark.parametrize("name", METHODS)
def test_all_questions_of_a_method_share_each_wave_s_batch_and_search(name: str) -> None:
    llm, searcher = BatchedLLM(), FiveSearcher()
    predictions = run_all(name, llm, searcher, n=20)
    assert [prediction.error for prediction in predictions] == [None] * 20
    steps = [step for prediction in predictions for step in prediction.steps]
    asked = {step.depth for step in steps if isinstance(step.request, Call)}
    searched = {step.depth for step in steps if isinstance(step.request, Retrieve)}
    assert len(llm.batches) <= len(asked)  # fewer where all calls of a depth have been answered before
    assert searcher.n_calls <= len(searched)
    assert len(llm.batches[0]) >= 20


@pytest.mark.parametrize(
    ("name", "role", "items"),
    [
        ("ra_isf", "relevance", [f"{letter} t" for letter in "ABCDE"]),
        ("retrorag", "evidence", [f"{letter} t" for letter in "ABCDE"]),
        ("retrorag", "relevance", ["X", "Y", "Z"]),
        ("retrorag", "attribution", ["X", "Y", "Z"]),
    ],
)
def test_prompts_that_judge_one_thing_each_share_all_that_stands_before_it(name: str, role: str, items: list[str]) -> None:
    """And stand side by side in the batch, question by question: what a server with a prefix cache reads once."""
    llm = BatchedLLM()
    run_all(name, llm, FiveSearcher(), n=3)
    batch = next(batch for batch in llm.batches if any(call.role == role for call in batch))
    places = [place for place, call in enumerate(batch) if call.role == role]
    prompts = [prompt_text(batch[place].prompt) for place in places]
    assert len(prompts) == 3 * len(items)
    for number in range(3):
        own = prompts[number * len(items) : (number + 1) * len(items)]
        shared = os.path.commonprefix(own)
        assert [prompt[len(shared) :][: len(item)] for prompt, item in zip(own, items, strict=True)] == items
        assert f"thing number {number}?" in shared or role == "attribution"
        assert len(shared) > 0.5 * max(map(len, own))
    if name == "ra_isf":
        assert {later - earlier for earlier, later in pairwise(places)} == {1}


class SimulatedTime(selectors.DefaultSelector):
    """The clock of an event loop whose waits take no time."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        self.now += 0 if events else timeout or 0
        return events


class SimulatedThreads:
    """The threads of an endpoint in an event loop's simulated time: a call takes as many seconds as it sets."""

    def __init__(self, n: int, loop: asyncio.AbstractEventLoop) -> None:
        self.n_free, self.seconds, self._loop = n, 0.0, loop
        self._jobs = deque[Callable[[], object]]()

    def submit(self, function: Callable[..., object], *args: object) -> None:
        self._jobs.append(partial(function, *args))
        self._work()

    def call_later(self, callback: Callable[..., object], *args: Any) -> None:  # noqa: ANN401
        """Call a function in the loop when the current call has ended."""
        self._loop.call_later(self.seconds, callback, *args)

    def shutdown(self, **_: object) -> None:
        assert not self._jobs

    def _work(self) -> None:
        while self.n_free and self._jobs:
            self.n_free -= 1
            self._jobs.popleft()()
            self.call_later(self._end)

    def _end(self) -> None:
        self.n_free += 1
        self._work()


def in_order(chains: Sequence[Sequence[float]], n: int) -> float:
    """Return when ``n`` workers have finished chains of calls, if a free one takes the call that has waited longest."""
    ready, free = [(0.0, number, 0) for number in range(len(chains))], [0.0] * n
    end = 0.0
    while ready:
        since, number, place = heapq.heappop(ready)
        end_of_call = max(since, heapq.heappop(free)) + chains[number][place]
        heapq.heappush(free, end_of_call)
        end = max(end, end_of_call)
        if place + 1 < len(chains[number]):
            heapq.heappush(ready, (end_of_call, number, place + 1))
    return end


@pytest.mark.parametrize("n", [1, 8, 32, 300])
def test_an_endpoint_of_varying_latency_has_no_free_place_while_a_call_waits(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In simulated time the run takes as long as its calls do in the order of their requests: without any overhead, to the digit."""
    clock, drawn = SimulatedTime(), random.Random(n)
    loop = asyncio.SelectorEventLoop(clock)
    threads = SimulatedThreads(n, loop)
    chains = [[min(max(drawn.lognormvariate(-0.2, 0.8), 0.2), 5.0) for _ in range(drawn.randint(1, 9))] for _ in QUESTIONS]

    class Endpoint(ScriptedLLM):
        def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
            (call,) = calls
            number, place = map(int, prompt_text(call.prompt).split())
            threads.seconds = chains[number][place]
            return super().run(calls, deliver)

    async def ask(question: str) -> Answer:
        number = int(question.split()[-1].strip("?"))
        for place in range(len(chains[number])):
            await generate(f"{number} {place}")
        return Answer("")

    llm = Endpoint(answer)
    llm.capabilities = dataclasses.replace(llm.capabilities, concurrency=n)
    monkeypatch.setattr(dispatching, "RequestThreads", lambda n, name: threads)
    monkeypatch.setattr(loop, "time", lambda: clock.now)
    monkeypatch.setattr(loop, "call_soon_threadsafe", threads.call_later)

    async def answer_all() -> list[Prediction]:
        return [one async for one in predict(ask, QUESTIONS, Services(llms={"answer": llm}), in_flight=N)]

    assert len(loop.run_until_complete(answer_all())) == N
    assert clock.now == pytest.approx(in_order(chains, n), rel=1e-6)
    loop.close()


class LateLLM(ScriptedLLM):
    """An endpoint that answers eight calls at a time, each after another time."""

    def __init__(self, seed: int) -> None:
        super().__init__(answer)
        self.capabilities, self._random = dataclasses.replace(self.capabilities, concurrency=8), random.Random(seed)

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        time.sleep(self._random.uniform(0, 0.004))
        return super().run(calls, deliver)


@pytest.mark.parametrize("name", METHODS)
def test_predictions_of_a_method_depend_on_neither_time_nor_other_questions(name: str) -> None:
    method = find_method(name)

    def predict(llm: ScriptedLLM, in_flight: int) -> dict[str, Prediction]:
        services = services_of(method, llm, FiveSearcher())
        answers = execute(lambda question: method.run(question, method.options()), QUESTIONS[:6], services, in_flight=in_flight)
        return {prediction.id: prediction for prediction in answers}

    alone = predict(ScriptedLLM(answer), 1)
    assert [prediction.error for prediction in alone.values()] == [None] * 6
    assert [predict(LateLLM(seed), 6) for seed in range(2)] == [alone] * 2

"""Replicas: one model at several endpoints, on real servers on the loopback address."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.llms.calling import Clock, error_of, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from wikidx.base.errors import InputError
from wikidx.runtimes.llms import replicas
from wikidx.runtimes.llms.base import LLM, Call, Generate
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import Settings, assign_models, open_llms
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Message

FAST = ConnectionOptions(concurrency=4, retries=2, first_pause=0.01, timeout=10.0)
DOWN = (503, {"error": {"message": "shutting down"}})


def ask(text: str) -> Generate:
    return Generate(prompt=(Message("user", text),))


class Servers:
    """Servers that answer with the text of the prompt; ``answers[n]`` replaces the answer of server ``n``."""

    def __init__(self, n: int, stack: ExitStack, seconds: float = 0.0) -> None:
        self.answers: dict[int, Answer] = {}
        self.stack, self.seconds, self.largest, self._open, self._lock = stack, seconds, Counter[int](), Counter[int](), threading.Lock()
        self.servers = [FakeServer(lambda path, body, number=number: self.answer(number, body)) for number in range(n)]  # type: ignore[misc]
        self.urls = [stack.enter_context(fake_serving(server)) for server in self.servers]

    def answer(self, number: int, body: dict[str, Any]) -> Answer:
        with self._lock:
            self._open[number] += 1
            self.largest[number] = max(self.largest[number], self._open[number])
        time.sleep(self.seconds)
        with self._lock:
            self._open[number] -= 1
        return self.answers.get(number) or chat(body["messages"][-1]["content"].upper())

    def open(self, options: ConnectionOptions = FAST, cache: ReplyCache | None = None) -> LLM:
        specs = assign_models([f"answer=openai:m@{','.join(self.urls)}"], ["answer"])
        return self.stack.enter_context(closing(open_llms(specs, Settings(options, cache))["answer"]))

    def counts(self) -> list[int]:
        return [len(server.bodies) for server in self.servers]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(replicas, "time", clock)
    return clock


def texts(model: LLM, calls: list[Call]) -> list[str]:
    return [gens(reply)[0].text for reply in model.run(calls)]


def ask_all(model: LLM, n: int, name: str = "call") -> None:
    """Ask a model, and check that the replies come in order."""
    assert texts(model, [ask(f"{name} {number}") for number in range(n)]) == [f"{name} {number}".upper() for number in range(n)]


def test_calls_are_spread_and_come_back_in_order(stack: ExitStack) -> None:
    servers = Servers(3, stack, seconds=0.02)
    model = servers.open()
    ask_all(model, 60)
    assert model.name == f"openai:m@{','.join(servers.urls)}"
    assert model.capabilities.concurrency == 12
    assert min(servers.counts()) >= 10
    assert sum(servers.counts()) == 60
    assert max(servers.largest.values()) <= 4  # concurrency counts for each replica


def test_a_replica_that_fails_costs_no_call_and_is_asked_again_after_its_time(
    stack: ExitStack, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    servers = Servers(2, stack)
    model, n_asked = servers.open(), 0
    servers.answers[1] = DOWN
    for n_seconds in (30, 60):
        ask_all(model, 20)
        (said,) = [message for message in caplog.messages if f"is left out for {n_seconds} s" in message]
        assert servers.urls[1] in said
        assert "shutting down" in said
        n_asked = servers.counts()[1]
        clock.move(n_seconds - 1)
        ask_all(model, 20)
        assert servers.counts()[1] == n_asked
        clock.move(2)
    del servers.answers[1]
    ask_all(model, 20)
    assert servers.counts()[1] > n_asked


def test_a_replica_that_is_not_there_is_left_out_and_one_that_lacks_the_model_or_wants_another_key_too(stack: ExitStack) -> None:
    servers = Servers(4, stack)
    servers.answers |= {2: refusal("The model 'm' does not exist.", 404), 3: refusal("another key", 401)}
    servers.urls[1] = "http://127.0.0.1:9/v1"
    ask_all(servers.open(), 12)


def test_a_call_fails_only_if_all_replicas_fail_or_one_refuses_it(stack: ExitStack) -> None:
    servers = Servers(2, stack)
    model = servers.open()
    servers.answers |= dict.fromkeys((0, 1), refusal("your prompt is improper"))
    assert "your prompt is improper" in error_of(model.run([ask("a")])[0])
    assert sum(servers.counts()) == 1
    servers.answers |= {0: DOWN, 1: DOWN}
    assert "503: shutting down" in error_of(model.run([ask("b")])[0])
    assert min(servers.counts()) >= 2


@pytest.mark.parametrize(
    ("answer", "timeout", "n_sent", "said"),
    [(chat("late"), 0.05, 1, "has not answered within 0.05 s"), ((200, {"choices": []}), 10.0, 2, "no choices in {'choices': []}")],
)
def test_replicas_that_time_out_or_answer_no_texts_are_not_asked_forever(
    stack: ExitStack, answer: Answer, timeout: float, n_sent: int, said: str
) -> None:
    servers = Servers(2, stack, seconds=0.3 if timeout < 1 else 0.0)
    servers.answers |= {0: answer, 1: answer}
    model = servers.open(dataclasses.replace(FAST, timeout=timeout, retries=5))
    assert said in error_of(model.run([ask("a")])[0])
    assert servers.counts() == [n_sent, n_sent]


def test_prompts_with_the_same_beginning_go_to_the_same_idle_replica(stack: ExitStack) -> None:
    servers = Servers(2, stack)
    model = servers.open()
    for number in range(6):
        model.run([ask("x" * 1_000 + str(number))])
    assert sorted(servers.counts()) == [0, 6]
    for number in range(40):
        model.run([ask(f"{number} another")])
    assert min(servers.counts()) > 5


def test_replies_are_cached_whichever_replica_gave_them(stack: ExitStack, tmp_path: Path) -> None:
    cache = stack.enter_context(closing(ReplyCache(tmp_path / "replies")))
    servers = Servers(2, stack)
    for _ in range(2):
        ask_all(servers.open(cache=cache), 8)
    assert sum(servers.counts()) == 8


def test_an_address_twice_is_refused() -> None:
    with pytest.raises(InputError, match="the address http://a:1/v1 is given twice"):
        replicas.split_urls("http://a:1/v1,https://b,http://a:1/v1")
    assert replicas.split_urls("http://a:1/v1?x=1,2,https://b") == ["http://a:1/v1?x=1,2", "https://b"]

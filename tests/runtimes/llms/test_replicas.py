"""Replicas: one model at several endpoints, on real servers on the loopback address."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.llms.calling import error_of, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from wikidx.base.errors import InputError
from wikidx.runtimes.llms import replicas
from wikidx.runtimes.llms.base import LLM, Call, Generate, Message
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import Settings, assign_models, open_llms
from wikidx.runtimes.llms.options import ConnectionOptions

FAST = ConnectionOptions(concurrency=4, retries=2, first_pause=0.01, timeout=10.0)
DOWN = (503, {"error": {"message": "shutting down"}})


def ask(text: str) -> Generate:
    return Generate(prompt=(Message("user", text),))


class Servers:
    """Servers that answer with the text of the prompt; ``answers[n]`` replaces the answer of server ``n``."""

    def __init__(self, n: int, stack: ExitStack, seconds: float = 0.0) -> None:
        self.answers: dict[int, Answer] = {}
        self.seconds, self.largest, self._open, self._lock = seconds, Counter[int](), Counter[int](), threading.Lock()
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
        return open_llms(specs, Settings(options, cache))["answer"]

    def counts(self) -> list[int]:
        return [len(server.bodies) for server in self.servers]


def texts(model: LLM, calls: list[Call]) -> list[str]:
    return [gens(reply)[0].text for reply in model.run(calls)]


def test_calls_are_spread_and_come_back_in_order() -> None:
    with ExitStack() as stack:
        servers = Servers(3, stack, seconds=0.02)
        model = servers.open()
        stack.callback(model.close)
        assert texts(model, [ask(f"call {number}") for number in range(60)]) == [f"CALL {number}" for number in range(60)]
        assert model.name == f"openai:m@{','.join(servers.urls)}"
        assert model.capabilities.concurrency == 12
    assert min(servers.counts()) >= 10
    assert sum(servers.counts()) == 60
    assert max(servers.largest.values()) <= 4  # concurrency counts for each replica


def test_a_replica_that_dies_in_the_middle_costs_no_call(caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        servers = Servers(2, stack, seconds=0.01)
        model = servers.open()
        stack.callback(model.close)
        assert len(texts(model, [ask(f"before {number}") for number in range(20)])) == 20
        servers.answers[1] = DOWN
        answers = texts(model, [ask(f"call {number}") for number in range(40)])
    assert answers == [f"CALL {number}" for number in range(40)]
    said = [message for message in caplog.messages if "is left out for 30 s" in message]
    assert len(said) == 1
    assert servers.urls[1] in said[0]
    assert "shutting down" in said[0]


def test_a_replica_that_is_not_there_is_left_out_and_one_that_lacks_the_model_too() -> None:
    with ExitStack() as stack:
        servers = Servers(3, stack)
        servers.answers[2] = refusal("The model 'm' does not exist.", 404)
        servers.urls[1] = "http://127.0.0.1:9/v1"
        model = servers.open()
        stack.callback(model.close)
        assert texts(model, [ask(f"call {number}") for number in range(12)]) == [f"CALL {number}" for number in range(12)]


def test_a_replica_is_asked_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_LEFT_OUT_S", (0.05, 0.1))
    with ExitStack() as stack:
        servers = Servers(2, stack)
        model = servers.open()
        stack.callback(model.close)
        servers.answers[0] = DOWN
        texts(model, [ask(f"call {number}") for number in range(8)])
        del servers.answers[0]
        time.sleep(0.15)
        before = servers.counts()[0]
        texts(model, [ask(f"again {number}") for number in range(16)])
        assert servers.counts()[0] > before


def test_a_call_fails_only_if_all_replicas_fail_or_one_refuses_it() -> None:
    with ExitStack() as stack:
        servers = Servers(2, stack)
        model = servers.open()
        stack.callback(model.close)
        servers.answers |= {0: refusal("your prompt is improper"), 1: refusal("your prompt is improper")}
        assert "your prompt is improper" in error_of(model.run([ask("a")])[0])
        assert sum(servers.counts()) == 1
        servers.answers |= {0: DOWN, 1: DOWN}
        assert "503: shutting down" in error_of(model.run([ask("b")])[0])
        assert min(servers.counts()) >= 2


def test_prompts_with_the_same_beginning_go_to_the_same_idle_replica() -> None:
    with ExitStack() as stack:
        servers = Servers(2, stack)
        model = servers.open()
        stack.callback(model.close)
        for number in range(6):
            model.run([ask("x" * 1_000 + str(number))])
        assert sorted(servers.counts()) == [0, 6]
        for number in range(40):
            model.run([ask(f"{number} another")])
        assert min(servers.counts()) > 5


def test_replies_are_cached_whichever_replica_gave_them(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cache = ReplyCache(tmp_path / "replies")
        stack.callback(cache.close)
        servers = Servers(2, stack)
        for _ in range(2):
            model = servers.open(cache=cache)
            texts(model, [ask(f"call {number}") for number in range(8)])
            model.close()
        assert sum(servers.counts()) == 8


def test_an_address_twice_is_refused() -> None:
    with pytest.raises(InputError, match="the address http://a:1/v1 is given twice"):
        replicas.split_urls("http://a:1/v1,https://b,http://a:1/v1")
    assert replicas.split_urls("http://a:1/v1?x=1,2,https://b") == ["http://a:1/v1?x=1,2", "https://b"]


def test_a_run_with_replicas_of_which_one_dies_fails_no_question(tmp_path: Path, idx: Command) -> None:
    with ExitStack() as stack:
        servers = Servers(2, stack, seconds=0.005)
        first = servers.servers[0]
        usual = first.answer
        first.answer = lambda path, body: usual(path, body) if len(first.bodies) < 10 else DOWN
        questions = ("--questions", "sample", "--limit", "60", "--out", tmp_path / "out")
        said = idx("run", "direct", *questions, "--llm", f"openai:m@{','.join(servers.urls)}", "--concurrency", "4")
    assert "60 questions, 60 answered, 0 failed" in said
    settings = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["models"]["answer"]["url"] == ",".join(servers.urls)

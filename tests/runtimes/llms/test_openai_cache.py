"""Replies of an endpoint that are kept, and those that are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, FAST, SHORT, TURNS, error_of, gens
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import AskYesNo, Call, Decoding, Generate, MeanNll, Message, Reply
from wikidx.runtimes.llms.cache import ReplyCache
from wikidx.runtimes.llms.naming import Settings, open_llms, parse_spec
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.scripted import ScriptedLLM

Replies = list[Reply | LLMError]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ReplyCache]:
    with closing(ReplyCache(tmp_path / "replies.sqlite")) as opened:
        yield opened


def run(url: str, cache: ReplyCache, calls: list[Call], options: ConnectionOptions = FAST) -> Replies:
    """Answer calls by the endpoint, as users name it."""
    with closing(open_llms({"answer": parse_spec(f"openai:tiny@{url}")}, Settings(options, cache))["answer"]) as model:
        return model.run(calls)


def test_replies_are_kept_and_paid_for_once(url: str, endpoint: Endpoint, tmp_path: Path) -> None:
    seeded = Generate(prompt=TURNS, decoding=Decoding(max_tokens=6, temperature=1.0, seed=5), n=2, logprobs=True)
    unseeded = Generate(prompt=TURNS, decoding=Decoding(max_tokens=6, temperature=1.0))
    calls: list[Call] = [ASK, seeded, AskYesNo(prompt=TURNS), MeanNll(prompt="The", continuation=" river")]
    with closing(ReplyCache(tmp_path / "replies.sqlite")) as cache:
        first = run(url, cache, [*calls, unseeded], ConnectionOptions(concurrency=1))
        assert len(endpoint.bodies) == 5
    with closing(ReplyCache(tmp_path / "replies.sqlite")) as cache:
        assert run(url, cache, [*calls, Generate(prompt=TURNS, decoding=SHORT, role="other")]) == [*first[:-1], first[0]]
        assert len(endpoint.bodies) == 5  # the role is not part of the key
        run(url, cache, [unseeded])
        assert len(endpoint.bodies) == 6
        endpoint.faults.append("400")
        fresh = Generate(prompt="new", decoding=SHORT)
        assert error_of(run(url, cache, [fresh])[0])
        assert gens(run(url, cache, [fresh])[0])  # a failure is not kept


def test_a_reply_is_kept_as_soon_as_it_comes(cache: ReplyCache) -> None:
    """Of a batch whose second call is answered only when the first reply is in the cache."""
    first, second = (Generate(prompt=(Message("user", text),)) for text in ("1", "2"))

    def answer(path: str, body: dict[str, Any]) -> Answer:
        deadline = time.monotonic() + 10
        while body["messages"][0]["content"] == "2" and time.monotonic() < deadline and not cache.get(f"openai:tiny@{urls[0]}", first):
            time.sleep(0.01)
        return chat("late" if time.monotonic() > deadline else "a")

    urls = list[str]()
    with fake_serving(FakeServer(answer)) as url:
        urls.append(url)
        assert [gens(reply)[0].text for reply in run(url, cache, [second, first])] == ["a", "a"]


def test_a_reply_is_kept_for_the_context_that_its_prompt_was_cut_to(url: str, endpoint: Endpoint, cache: ReplyCache) -> None:
    for n_asked, context in ((1, 200), (2, 300), (2, 200), (3, None)):
        assert gens(run(url, cache, [ASK], ConnectionOptions(context=context))[0])
        assert len(endpoint.bodies) == n_asked


def test_two_endpoints_that_name_a_model_alike_are_two_models(url: str, cache: ReplyCache) -> None:
    """Many servers call whatever they run "default"."""
    with ExitStack() as stack:
        other = stack.enter_context(serving(Endpoint(ScriptedLLM(lambda call: "another"))))
        here, there = run(url, cache, [ASK])[0], run(other, cache, [ASK])[0]
    assert gens(there)[0].text == "another" != gens(here)[0].text

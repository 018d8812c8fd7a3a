"""Connections to endpoints: addresses, keys and proxies, what is tried again, and limits of time and size. The server moves the clock."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, TURNS, Clock, error_of, gens, one, opened, wait_until
from tests.runtimes.llms.fake_server import (
    LLAMA_CPP,
    LM_STUDIO,
    UNKNOWN,
    VLLM,
    Answer,
    FakeServer,
    Pages,
    Raw,
    Stream,
    chat,
    event,
    fake_serving,
    refusal,
    token,
)
from tests.scripted import answer, scripted
from wikidx.base.errors import InputError
from wikidx.base.net import endpoint as json_endpoint
from wikidx.runtimes.errors import LLMError, Unreachable
from wikidx.runtimes.llms import openai_connection
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Decoding

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Who?"}]}


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/v1", "ftp://host"])
def test_an_address_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address of an endpoint"):
        Connection("tiny", url, ConnectionOptions())


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="printable ASCII"):
        Connection("tiny", "http://127.0.0.1:1", ConnectionOptions(api_key="schlüssel"))


def test_the_environment_s_proxy_is_asked_but_for_hosts_that_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.2")
    options = ConnectionOptions(retries=0)
    with pytest.raises(LLMError, match="the connection to tiny broke"):
        Connection("tiny", "http://models.invalid/v1", options).post("/completions", {})
    with pytest.raises(Unreachable, match=r"nobody listens at http://127\.0\.0\.2:9/v1"):
        Connection("tiny", "http://127.0.0.2:9/v1", options).post("/completions", {})


def test_an_address_without_its_ending_or_with_tls_is_told_what_to_try() -> None:
    with fake_serving(FakeServer(lambda path, body: refusal("no such page", 404))) as url:
        for address, advice in ((url.removesuffix("/v1"), f": the address may have to end in /v1: {url}"), (url, "")):
            with pytest.raises(LLMError, match=rf"\(404: no such page\){advice}$"):
                Connection("tiny", address, ConnectionOptions()).post("/chat/completions", BODY)
        with pytest.raises(LLMError, match=r"broke: no TLS is spoken there: try http:// in place of https:// \("):
            Connection("tiny", url.replace("http:", "https:"), ConnectionOptions(retries=0)).post("/completions", BODY)


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with opened("He.", retries=0) as (model, _):
        assert one(model).text == "He."


def test_nobody_listens() -> None:
    """The calls that are still waiting fail at once."""
    options = ConnectionOptions(retries=1, first_pause=0.2, concurrency=2)
    with closing(OpenAIHttp("tiny", "http://127.0.0.1:9/v1", options=options)) as model:
        replies = model.run([ASK] * 50)
    assert sum("was not called" in error_of(reply) for reply in replies) >= 46  # two at a time, twice
    assert "nobody listens at http://127.0.0.1:9/v1" in error_of(replies[0])


def test_a_query_of_the_address_stays_behind_the_path() -> None:
    server = FakeServer(lambda path, body: choice(text="Mercury"))
    with fake_serving(server) as url:
        connection = Connection("fake", f"{url}/?api-version=1", ConnectionOptions())
        connection.post("/completions", {})
        connection.models()
        connection.page("/props")
        connection.close()
    assert server.asked == ["/v1/completions?api-version=1", "/v1/models?api-version=1", "/props?api-version=1"]


@pytest.mark.parametrize(("n_bytes", "n_models", "context"), [(3_000, 1, 7), (5_000, 0, None)])
def test_descriptions_have_a_limit(n_bytes: int, n_models: int, context: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_connection, "MAX_PAGE_BYTES", 4_000)
    pages = {path: {"data": [{"id": "m"}], "n_ctx": 7, "more": "x" * n_bytes} for path in ("/v1/models", "/props")}
    with opened((200, {"tokens": [1] * 2_000}), pages) as (model, _):
        connection = model._connection
        assert len(connection.models()) == n_models
        assert (connection.page("/props") or {}).get("n_ctx") == context
        assert connection.page("/tokenize", {"content": "x"}) is None
        assert connection.page("/tokenize", {"content": "x" * 500}) is not None


def test_a_silent_server_is_asked_for_one_page_within_the_time_limit() -> None:
    server = FakeServer(lambda path, body: refusal("no"), SlowPages({"/props": {}}))
    with fake_serving(server) as url:
        connection = Connection("fake", url, ConnectionOptions(timeout=0.2))
        assert [connection.page("/props"), connection.page("/version"), connection.models()] == [None, None, []]
        connection.close()
    assert server.asked == ["/props"]


class SlowPages(dict[str, Any]):
    """Pages that come late."""

    def get(self, key: str, default: object = None) -> object:
        time.sleep(0.6)
        return default


def choice(**fields: Any) -> Answer:  # noqa: ANN401 - JSON
    return 200, {"choices": [{"finish_reason": "stop", **fields}]}


def iter_error(error: dict[str, Any]) -> Raw:
    """Return a stream with an error after a token."""
    return 200, token("a") + event(error=error), "text/event-stream"


EVENT_OF_502 = (
    b'data: {"choices": [{"delta": {"content": "Mer"}, "finish_reason": "error", "error": {"message": "died", "code": 502}}]}\n\n'
)


@pytest.mark.parametrize(
    ("answer", "n_sent", "said"),
    [
        ((200, b"<html><title>Sign in</title>", "text/html"), 3, "no usable answer: HTML, not JSON: Sign in, at http://127.0.0.1:"),
        ((200, b"", "text/event-stream"), 3, "it is empty (3 tries)"),
        ((200, b'{"choices": [\x1b[1m', "application/json"), 3, 'line 1 column 14 (char 13): {"choices": [ [1m (3 tries)'),
        ((200, {"error": "invalid key"}), 3, "answers an error: invalid key (3 tries)"),
        ((200, {"error": {"message": "no credit", "code": 402}}), 1, "refuses the request (402: no credit)"),
        ((200, {"object": "made"}), 3, "no choices in {'object': 'made'"),
        (refusal("made to fail", 500), 5, "answers 500: made to fail (5 tries)"),
        (refusal("made to fail", 429), 5, "answers 429: made to fail (5 tries)"),
        (iter_error({"message": "out of memory", "type": "server_error"}), 3, "answers an error: out of memory (3 tries)"),
        (iter_error({"message": "Conversation roles must alternate"}), 2, "refuses the request (400: Conversation roles must alternate)"),
        (iter_error({"message": "busy", "code": 503}), 5, "answers 503: busy (5 tries)"),
        (iter_error({"message": "no such tool", "code": 422}), 1, "refuses the request (422: no such tool)"),
        (choice(text="", error={"message": "died", "code": 502}), 5, "answers 502: died (5 tries)"),
        ((200, EVENT_OF_502, "text/event-stream"), 5, "answers 502: died (5 tries)"),
        (choice(delta={"content": ""}, finish_reason="network_error"), 3, "answers an error: network_error (3 tries)"),
        ((200, b'data: {"detail": "no"}\n\ndata: [DONE]\n\n', "text/event-stream"), 3, "no choices in {'detail': 'no'"),
        ((400, b'[{"error": {"message": "bad key", "code": 400}}]', "application/json"), 1, "refuses the request (400: bad key)"),
        (refusal("no key", 401), 1, "(401: no key): set OPENAI_API_KEY"),
        (refusal("unsupported country", 403), 1, "(403: unsupported country): set OPENAI_API_KEY if it is about the key"),
        (refusal("model 'fake' not found", 404), 1, "model 'fake' not found): it serves fake-7b"),
    ],
)
def test_what_is_no_answer_is_told_after_as_many_tries_as_may_help(answer: Answer | Raw, n_sent: int, said: str) -> None:
    pages = {"/v1/models": {"data": [{"id": "fake-7b"}, {"id": 5}]}}
    with opened(answer, pages, retries=4) as (model, server):
        assert said in error_of(model.run([ASK])[0])
    assert len(server.bodies) == n_sent


def test_a_long_pause_that_the_endpoint_asks_for_is_told_and_closing_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    busy = answer("429 Too Many Requests", b'{"error": "busy"}', "retry-after: 1e18")
    with scripted([busy]) as server, ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        connection = Connection("tiny", server.url, ConnectionOptions())
        asking = pool.submit(connection.post, "/chat/completions", BODY)
        wait_until(lambda: caplog.messages or asking.done())
        connection.close()
        assert "tiny answers 429: busy" in str(asking.exception(30))
    assert caplog.messages == ["retry in 300 s: tiny answers 429: busy"]


def test_an_answer_without_end_is_given_up() -> None:
    answers = [itertools.repeat(b" " * 1_000_000, 80)]
    with opened(lambda path, body: answers.pop() if answers else chat("He."), retries=0) as (model, _):
        assert "it has more than 64.0 MB" in error_of(model.run([ASK])[0])
        assert one(model).text == "He."


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(openai_connection, "time", clock)
    return clock


def follow(clock: Clock, model: OpenAIHttp) -> None:
    """Let a clock wait for what a model has read."""
    clock.noted = lambda: model._connection.last_token


def wait_to_be_left() -> Stream:
    """Send comments until the client goes."""
    for _ in range(3000):
        time.sleep(0.01)
        yield b": waiting\n\n"


def test_a_long_answer_takes_longer_than_any_limit(clock: Clock) -> None:
    def slowly(path: str, body: dict[str, Any]) -> Stream:
        for number in range(12):
            yield clock.send(token(f"{number} ", "stop" if number == 11 else None), after_s=0.3)

    with opened(slowly, timeout=0.4, token_timeout=0.4) as (model, server):
        follow(clock, model)
        assert one(model).text == " ".join(map(str, range(12))) + " "
    assert len(server.bodies) == 1


@pytest.mark.parametrize(("pages", "n_sent"), [(VLLM, 2), (LLAMA_CPP, 2), (UNKNOWN, 1), (LM_STUDIO, 1)])
def test_a_timed_out_request_is_sent_again_once_to_a_server_that_has_given_it_up(clock: Clock, pages: Pages, n_sent: int) -> None:
    """The connection is closed, by which the server notices; of other servers nobody knows whether they still work."""

    def stall(path: str, body: dict[str, Any]) -> Stream:
        yield clock.send(token("a"), after_s=0.1)
        clock.move(1.0)
        yield from wait_to_be_left()

    with opened(stall, pages, token_timeout=0.15, retries=5) as (model, server):
        follow(clock, model)
        said = error_of(model.run([ASK])[0])
        wait_until(lambda: server.n_abandoned == n_sent)
    assert "has sent no further token for 0.15 s: raise --token-timeout" in said
    assert ("(2 tries)" in said) == (n_sent == 2)
    assert len(server.bodies) == n_sent


@pytest.mark.parametrize("timeout", [5.0, 0.1])
def test_a_part_without_a_token_does_not_begin_an_answer(clock: Clock, timeout: float) -> None:
    """OpenAI's cloud names the speaker at once, and thinks unseen before the first token."""

    def think(path: str, body: dict[str, Any]) -> Stream:
        yield event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        clock.move(0.3)
        yield from [token("a", "stop")] if timeout > 1 else wait_to_be_left()

    with opened(think, timeout=timeout, token_timeout=0.1) as (model, _):
        (reply,) = model.run([ASK])
    if timeout > 1:
        assert gens(reply)[0].text == "a"
    else:
        assert "has not answered within 0.1 s: lower --concurrency if requests wait there, or raise --timeout" in error_of(reply)


@pytest.mark.parametrize("streams", [True, False])
def test_waiting_at_a_server_for_others_is_no_time_out(clock: Clock, streams: bool) -> None:
    """Six requests at a time, to a server with one slot: the last ones wait longer than the limit."""
    slot = threading.Lock()

    def serve() -> Stream:
        with slot:
            for number in range(3):
                yield clock.send(token("a", "stop" if number == 2 else None), after_s=0.2)

    def answer(path: str, body: dict[str, Any]) -> Answer | Stream:
        if streams:
            return serve()
        with slot:
            clock.send(b"", after_s=0.2)
        return chat("aaa")

    with opened(answer, concurrency=6, timeout=0.25, token_timeout=0.25, retries=0) as (model, server):
        follow(clock, model)
        assert [gens(reply)[0].text for reply in model.run([ASK] * 6)] == ["aaa"] * 6
    assert len(server.bodies) == 6
    assert clock.now > 1001


def test_a_stream_that_breaks_off_is_tried_again() -> None:
    parts = [[token("a")], [token("a"), token("b", "stop")]]
    with opened(lambda path, body: iter(parts.pop(0))) as (model, server):
        assert one(model).text == "ab"
    assert len(server.bodies) == 2


def test_a_stream_that_ignores_the_maximum_of_tokens_is_ended_and_cut() -> None:
    with opened(lambda path, body: itertools.repeat(token("a "), 100_000)) as (model, server):
        gen = one(model)
        wait_until(lambda: server.n_abandoned)
    assert gen.finish == "length"
    n_tokens = server.bodies[0]["max_tokens"]
    assert 8 * n_tokens < gen.text.count("a") < 8 * n_tokens + 3_000  # what has arrived together is read


def test_a_connection_is_used_again_after_a_stream() -> None:
    with opened(lambda path, body: iter([token("a", "stop"), b"data: [DONE]\n\n"]), concurrency=1) as (model, server):
        assert [one(model).text for _ in range(3)] == ["a"] * 3
    assert len(server.ports) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_greedy_text_that_repeats_itself_is_ended(temperature: float, field: str) -> None:
    """Four times and 512 characters are a loop: 26 times " The answer is no." A drawn text may still end."""
    words = ["It", " is", " so", ".", *[" The", " answer", " is", " no", "."] * 100]

    def endlessly(path: str, body: dict[str, Any]) -> Stream:
        for word in words:
            time.sleep(0.001)
            yield event(choices=[{"index": 0, "delta": {field: word}, "finish_reason": None}])
        yield event(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])

    with opened(endlessly, VLLM) as (model, server):
        decoding = Decoding(max_tokens=600, temperature=temperature, thinking="on")
        (reply,) = model.run([Generate(prompt=TURNS, decoding=decoding)])
        if not temperature:
            wait_until(lambda: server.n_abandoned)
            one(model)
            assert server.bodies[1]["stream"]  # a loop says nothing about streams
    (gen,) = gens(reply)
    written = gen.text or gen.reasoning or ""
    assert isinstance(reply, Reply)
    assert gen.finish == "length"
    assert written.startswith("It is so. The answer is no. The answer")
    assert written.count("answer") == 100 if temperature else 26 <= written.count("answer") < 45
    assert temperature or len(words) / 4 < reply.completion_tokens < len(words) / 2


@pytest.mark.parametrize(
    "client",
    [lambda url: json_endpoint.Endpoint("tiny", url), lambda url: Connection("tiny", url, ConnectionOptions())],
    ids=["endpoint", "language model"],
)
def test_a_forked_process_does_not_read_answers_of_its_parent(client: Callable[[str], Any]) -> None:
    server = FakeServer(lambda path, body: (200, {"choices": [{"text": str(sorted(server.ports))}]}))

    def ports() -> str:
        return str(asked.post("/completions", {})["choices"][0]["text"])

    with fake_serving(server) as url, closing(client(url)) as asked:
        assert ports() == (kept := ports())
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.write(writing, ports().encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        both = os.read(reading, 100).decode()
        assert both != kept
        assert ports() == both
        for end in (reading, writing):
            os.close(end)

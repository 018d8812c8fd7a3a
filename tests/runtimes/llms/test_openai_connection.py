"""Addresses, keys and proxies of a connection, answers in all forms, and answers that never end."""

from __future__ import annotations

import http.server
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, SHORT, TURNS, error_of, gens
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.llms.fake_server import Answer, FakeServer, Raw, fake_serving, refusal
from wikidx.base.errors import InputError
from wikidx.base.net import endpoint as json_endpoint
from wikidx.runtimes.errors import LLMError, Unreachable
from wikidx.runtimes.llms import openai_answers
from wikidx.runtimes.llms.base import AskYesNo, Generate, Reply
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.openai_refusals import parse_refusal
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.llms.thinking import NO_THINKING

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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("slow headers", "has not answered within 0.5 s"),
        ("trickle", "has not answered within 0.5 s"),
        ("endless", "it has more than 64.0 MB"),
    ],
)
def test_an_answer_that_does_not_end_is_given_up(fault: str, message: str) -> None:
    endpoint = Endpoint(ScriptedLLM(lambda call: "He."))
    endpoint.faults.append(fault)
    with serving(endpoint) as url:
        connection = Connection("tiny", url, ConnectionOptions(retries=0, timeout=60.0 if fault == "endless" else 0.5))
        started = time.monotonic()
        with pytest.raises(LLMError, match=message):
            connection.post("/chat/completions", BODY)
        assert fault == "endless" or time.monotonic() - started < 4  # a fault takes 8 s
        assert connection.post("/chat/completions", BODY)["choices"][0]["message"]["content"] == "He."
        connection.close()


def test_a_long_pause_that_the_endpoint_asks_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(ScriptedLLM(lambda call: "He."))
    endpoint.faults.append("429 1e18")
    with serving(endpoint) as url, caplog.at_level(logging.WARNING):
        connection = Connection("tiny", url, ConnectionOptions())
        asking = threading.Thread(target=lambda: pytest.raises(LLMError, connection.post, "/chat/completions", BODY))
        asking.start()
        while not caplog.messages and asking.is_alive():
            asking.join(0.02)
        connection.close()
        asking.join()
    assert caplog.messages == ["retry in 300 s: tiny answers 429: made to fail"]


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(endpoint) as url:
        connection = Connection("tiny", url, ConnectionOptions(retries=0))
        assert connection.post("/chat/completions", BODY)["choices"]
        connection.close()


USAGE = {"prompt_tokens": 1, "completion_tokens": 1}


def choice(**fields: Any) -> Answer:  # noqa: ANN401 - JSON
    return 200, {"choices": [{"finish_reason": "stop", **fields}], "usage": USAGE}


def events(*parts: dict[str, Any], finish: str = "stop", name: str = "delta", kind: str = "text/event-stream") -> Raw:
    choices = [{name: part, "finish_reason": finish if part is parts[-1] else None} for part in parts]
    lines = [json.dumps({"choices": [choice], "usage": USAGE}) for choice in choices]
    return 200, "".join(f"data: {line}\n\n" for line in lines).encode(), kind


@contextmanager
def opened(answer: Answer | Raw) -> Iterator[tuple[OpenAIHttp, FakeServer]]:
    server = FakeServer(lambda path, body: answer, {"/v1/models": {"data": [{"id": "fake-7b"}, {"id": 5}]}})
    with fake_serving(server) as url:
        yield (model := OpenAIHttp("fake", url, options=ConnectionOptions(retries=4, first_pause=0.01))), server
        model.close()


CURY, IMAGE = {"type": "text", "text": "cury"}, {"type": "image_url", "image_url": {}}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
REFUSES = "the model refuses to answer"
LEFT_OUT, NO_TEXT = "parts of the answer that are no text are left out: ", "the endpoint gives no text: "


@pytest.mark.parametrize(
    ("answer", "text", "notes"),
    [
        (choice(message={"content": ["Mer", CURY]}), "Mercury", ()),
        (choice(message={"content": [IMAGE, "Mercury", {"type": "text", "text": {}}]}), "Mercury", (f"{LEFT_OUT}image_url, text",)),
        (choice(message={"content": [THOUGHT, "Mercury"]}), "Mercury", (NO_THINKING,)),
        (events({"content": ["Mer"]}, {"content": [CURY, IMAGE]}), "Mercury", (f"{LEFT_OUT}image_url",)),
        (choice(message={"content": ""}, finish_reason="content_filter"), "", (f"{NO_TEXT}content_filter",)),
        (events({"content": ""}, {}, finish="content_filter"), "", (f"{NO_TEXT}content_filter",)),
        (events({"content": None}, {}), "", ()),
        (choice(message={"content": "Mer"}, finish_reason="content_filter"), "Mer", ("the endpoint ends the text: content_filter",)),
        (events({"content": "Mer"}, finish="SAFETY"), "Mer", ("the endpoint ends the text: safety",)),
        (events({"content": "Mer"}, finish="network_error"), "Mer", ("the endpoint ends the text: network_error",)),
        (events({"content": "Mer"}, finish="tool_calls"), "Mer", ()),
        (choice(message={"content": "Mercury"}, finish_reason="COMPLETE"), "Mercury", ()),
        (choice(message={"content": None, "refusal": "I cannot."}), "I cannot.", (REFUSES,)),
        (events({"content": ""}, {"refusal": "I can"}, {"refusal": "not."}), "I cannot.", (REFUSES,)),
        (choice(message={"content": ["Mercury"], "refusal": {"why": 5}}), "Mercury", ()),
        (choice(message={"content": None, "refusal": True}), "", (f"{NO_TEXT}stop",)),
        (choice(message=None, text="Mercury"), "Mercury", ()),
        (choice(delta={"content": "Mercury"}), "Mercury", ()),
        (events({"content": "Mer"}, {"content": "cury"}, name="message"), "Mercury", ()),
        (events({"content": "Mercury", "reasoning": {"summary": "hm"}}), "Mercury", ()),
        (events({"content": "Mercury"}, kind="application/octet-stream"), "Mercury", ()),
        ((200, json.dumps(choice(text="Mercury")[1], indent=1).encode(), "text/event-stream"), "Mercury", ()),
        ((200, {"choices": [{"text": "Mercury", "finish_reason": {}, "logprobs": [-0.1]}], "usage": USAGE}), "Mercury", ("no logprobs",)),
    ],
)
def test_the_text_of_an_answer_is_found_in_all_its_forms(answer: Answer | Raw, text: str, notes: tuple[str, ...]) -> None:
    with opened(answer) as (model, server):
        gen = gens(model.run([Generate(prompt=TURNS, decoding=SHORT, logprobs="no logprobs" in notes)])[0])[0]
    assert (gen.text, gen.degraded, gen.reasoning) == (text, notes, "hm" if NO_THINKING in notes else None)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, (6, 2)),
        ({}, (6, 2)),
        ([1], (6, 2)),
        ({"prompt_tokens": None, "completion_tokens": None}, (6, 2)),
        ({"prompt_tokens": 9, "completion_tokens": None}, (9, 2)),
        ({"prompt_tokens": -1, "completion_tokens": 0}, (6, 0)),
        (USAGE, (1, 1)),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_numbers_of_tokens_that_the_endpoint_does_not_give_are_estimated(usage: Any, counted: tuple[int, int], is_streamed: bool) -> None:  # noqa: ANN401 - JSON
    said = {"choices": [{"finish_reason": "stop", "delta" if is_streamed else "message": {"content": "Mercury"}}], "usage": usage}
    with opened((200, f"data: {json.dumps(said)}\n\n".encode(), "text/event-stream") if is_streamed else (200, said)) as (model, _):
        (reply,) = model.run([ASK])
    assert isinstance(reply, Reply)
    assert (reply.prompt_tokens, reply.completion_tokens) == counted
    assert gens(reply)[0].degraded == (() if usage is USAGE else (openai_answers.ESTIMATED,))


def test_a_refusal_is_no_proof_that_the_endpoint_has_no_logprobs() -> None:
    with opened(choice(message={"content": None, "refusal": "I cannot."})) as (model, _):
        model.run([Generate(prompt=TURNS, decoding=SHORT, logprobs=True), AskYesNo(prompt=TURNS)])
        assert model.capabilities.logprobs


EVENT_OF_502 = (
    b'data: {"choices": [{"delta": {"content": "Mer"}, "finish_reason": "error", "error": {"message": "died", "code": 502}}]}\n\n'
)


@pytest.mark.parametrize("finish", ["length", "MAX_TOKENS", "model_context_window_exceeded"])
def test_a_text_that_the_server_cuts_is_cut_whatever_its_word_for_it(finish: str) -> None:
    with opened(events({"content": "Mer"}, finish=finish)) as (model, _):
        gen = gens(model.run([ASK])[0])[0]
    assert (gen.finish, gen.degraded) == ("length", ())


def test_a_query_of_the_address_stays_behind_the_path() -> None:
    server = FakeServer(lambda path, body: choice(text="Mercury"))
    with fake_serving(server) as url:
        connection = Connection("fake", f"{url}/?api-version=1", ConnectionOptions())
        connection.post("/completions", {})
        connection.models()
        connection.page("/props")
        connection.close()
    assert server.asked == ["/v1/completions?api-version=1", "/v1/models?api-version=1", "/props?api-version=1"]


@pytest.mark.parametrize(("n_bytes", "n_models", "context"), [(3_000_000, 1, 7), (5_000_000, 0, None)])
def test_descriptions_have_a_limit(n_bytes: int, n_models: int, context: int | None) -> None:
    pages = {path: {"data": [{"id": "m"}], "n_ctx": 7, "more": "x" * n_bytes} for path in ("/v1/models", "/props")}
    with fake_serving(FakeServer(lambda path, body: (200, {"tokens": [1] * 2_000_000}), pages)) as url:
        connection = Connection("fake", url, ConnectionOptions())
        assert len(connection.models()) == n_models
        assert (connection.page("/props") or {}).get("n_ctx") == context
        assert connection.page("/tokenize", {"content": "x"}) is None
        assert connection.page("/tokenize", {"content": "x" * 500_000}) is not None
        connection.close()


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


@pytest.mark.parametrize(("n_read", "n_written", "counted"), [(-5, 10**400, (0, 0)), (10**9, 10**9 + 1, (10**9, 0)), (True, 1.5, (1, 0))])
def test_impossible_numbers_of_tokens_are_taken_as_absent(n_read: object, n_written: object, counted: tuple[int, int]) -> None:
    usage = {"prompt_tokens": n_read, "completion_tokens": n_written, "completion_tokens_details": {"reasoning_tokens": n_written}}
    answer = openai_answers.Answer({"usage": usage}, ())
    assert (*answer.tokens, answer.hidden_tokens) == (*counted, 0)


@pytest.mark.parametrize(
    ("answer", "n_sent", "said"),
    [
        ((200, b"<html><title>Sign in</title>", "text/html"), 3, "no usable answer: HTML, not JSON: Sign in, at http://127.0.0.1:"),
        ((200, b"", "text/event-stream"), 3, "it is empty (3 tries)"),
        ((200, b'{"choices": [\x1b[1m', "application/json"), 3, 'line 1 column 14 (char 13): {"choices": [ [1m (3 tries)'),
        ((200, {"error": "invalid key"}), 3, "answers an error: invalid key (3 tries)"),
        ((200, {"error": {"message": "no credit", "code": 402}}), 1, "refuses the request (402: no credit)"),
        (choice(text="", error={"message": "died", "code": 502}), 5, "answers 502: died (5 tries)"),
        ((200, EVENT_OF_502, "text/event-stream"), 5, "answers 502: died (5 tries)"),
        (events({"content": ""}, finish="network_error"), 3, "answers an error: network_error (3 tries)"),
        ((200, b'data: {"detail": "no"}\n\ndata: [DONE]\n\n', "text/event-stream"), 3, "no choices in {'detail': 'no'"),
        ((400, b'[{"error": {"message": "bad key", "code": 400}}]', "application/json"), 1, "refuses the request (400: bad key)"),
        (refusal("unsupported country", 403), 1, "(403: unsupported country): set OPENAI_API_KEY if it is about the key"),
        (refusal("model 'fake' not found", 404), 1, "model 'fake' not found): it serves fake-7b"),
    ],
)
def test_what_is_no_answer_is_told_after_as_many_tries_as_may_help(answer: Answer | Raw, n_sent: int, said: str) -> None:
    with opened(answer) as (model, server):
        assert said in error_of(model.run([ASK])[0])
    assert len(server.bodies) == n_sent


@pytest.mark.parametrize(
    ("message", "name"),
    [("seed is not supported", "seed"), ("n must be 1", "n"), ("parameter: stop", "stop"), ("the upstream must stop", None)],
)
def test_a_field_is_told_from_the_same_word(message: str, name: str | None) -> None:
    assert parse_refusal(400, {"error": message}).refused_parameter({"model", "seed", "n", "stop", "stream"}) == name


class _Numbered(http.server.BaseHTTPRequestHandler):
    """Answers every request with the port of the client, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"choices": [{"text": str(self.client_address[1])}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    "client",
    [lambda url: json_endpoint.Endpoint("tiny", url), lambda url: Connection("tiny", url, ConnectionOptions())],
    ids=["endpoint", "language model"],
)
def test_a_forked_process_does_not_read_answers_of_its_parent(client: Callable[[str], Any]) -> None:
    def port() -> int:
        return int(asked.post("/completions", {})["choices"][0]["text"])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Numbered) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = client(f"http://127.0.0.1:{server.server_port}/v1")
        assert port() == (kept := port())
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.write(writing, str(port()).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(reading, 10)) != kept
        assert port() == kept
        for end in (reading, writing):
            os.close(end)
        asked.close()
        server.shutdown()

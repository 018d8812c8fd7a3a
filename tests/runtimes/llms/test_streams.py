"""Streamed answers: the same replies as without streaming, from fakes of each kind of server, and limits of the time between tokens."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.runtimes.llms.calling import ASK, FAST, SHORT, TURNS, error_of, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, Stream, chat, fake_serving, refusal
from tests.runtimes.llms.test_dialects import LLAMA_CPP, LM_STUDIO, OLLAMA, SGLANG, TGI, UNKNOWN, VLLM, Pages
from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.base import Decoding, Generate, Reply
from wikidx.runtimes.llms.dialects import LLAMA_CPP as LLAMA_CPP_DIALECT
from wikidx.runtimes.llms.naming import Settings, assign_models, open_llms
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.streams import ReportedError, StreamedAnswer

OPENAI: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "openai"}]}}
DRAWN = Decoding(max_tokens=8, temperature=1.0, seed=5)


class Wire(NamedTuple):
    """A server's form of streams.

    Attributes:
        pages: pages by which the server is recognised.
        first: the first part of a chat's message, before any token; None: there is none.
        each: further fields of each part.
        last: the part of a chat's message that comes with the reason to finish; None: the last token comes with it.
        data: the beginning of an event.
        end: the end of an event.
        extra: an event without data, before each other.
        is_done_said: whether the stream says that it ends.
        has_usage_alone: whether the numbers of tokens come in an event of their own.
    """

    pages: Pages
    first: dict[str, Any] | None = {"role": "assistant", "content": ""}
    each: Mapping[str, Any] = {}
    last: dict[str, Any] | None = {}
    data: bytes = b"data: "
    end: bytes = b"\n\n"
    extra: bytes = b""
    is_done_said: bool = True
    has_usage_alone: bool = True


WIRES = {
    "vLLM": Wire(VLLM, last=None),
    "SGLang": Wire(SGLANG, last={"role": None, "content": None, "reasoning_content": None, "tool_calls": None}),
    "llama.cpp": Wire(LLAMA_CPP, first={"role": "assistant", "content": None}),
    "Ollama": Wire(OLLAMA, first=None, each={"role": "assistant"}, last={"role": "assistant", "content": ""}),
    "LM Studio": Wire(LM_STUDIO, first=None, extra=b"event: message\n"),
    "text-generation-inference": Wire(TGI, first=None, each={"role": "assistant"}, last=None, data=b"data:"),
    "OpenAI": Wire(OPENAI, first={"role": "assistant", "content": "", "refusal": None}, each={"refusal": None}),
    "another": Wire(UNKNOWN, data=b"data:\t", end=b"\r\n\r\n", extra=b": alive\r\n\r\n", is_done_said=False, has_usage_alone=False),
}
CONTENT = ["Mer", "cury", " is ", "a métal", " 水", "."]
LOGPROBS = [
    {"token": token, "logprob": -0.5 * place, "top_logprobs": [{"token": "x", "logprob": -3.0}]} for place, token in enumerate(CONTENT)
]


def chat_answer(*, logprobs: bool = False, thoughts: str | None = None, texts: int = 1, finish: str = "stop") -> dict[str, Any]:
    """Return an answer of the chat API without streaming."""
    message = {"role": "assistant", "content": "".join(CONTENT), "left_out": []} | ({"reasoning_content": thoughts} if thoughts else {})
    choice = {"finish_reason": finish, "message": message, "logprobs": {"content": LOGPROBS} if logprobs else None}
    usage = {"prompt_tokens": 11, "completion_tokens": texts * len(CONTENT)}
    return {"id": "1", "model": "fake.gguf", "choices": [{"index": index, **choice} for index in range(texts)], "usage": usage}


def completion_answer() -> dict[str, Any]:
    """Return an answer of the completions API without streaming."""
    places = range(len(CONTENT))
    offsets = [sum(map(len, CONTENT[:place])) for place in places]
    logprobs = {
        "tokens": CONTENT,
        "token_logprobs": [-float(place) for place in places],
        "top_logprobs": [{"x": -1.0}] * len(CONTENT),
        "text_offset": offsets,
    }
    choice = {"index": 0, "finish_reason": "length", "text": "".join(CONTENT), "logprobs": logprobs}
    return {"id": "1", "model": "fake.gguf", "choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": len(CONTENT)}}


def message_parts(choice: dict[str, Any], wire: Wire) -> Iterator[dict[str, Any]]:
    """Yield the parts of a text of the chat API."""
    message, logprobs = choice["message"], (choice["logprobs"] or {}).get("content")
    if wire.first is not None:
        yield {"delta": wire.first}
    for word in (message.get("reasoning_content") or "").split():
        yield {"delta": {**wire.each, "reasoning_content": word + " "}}
    tokens = CONTENT if message["content"] else []
    for place, token in enumerate(tokens):
        yield {"delta": {**wire.each, "content": token}, "logprobs": {"content": [logprobs[place]]} if logprobs else None}
    if wire.last is not None:
        yield {"delta": wire.last}


def text_parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a text of the completions API."""
    for place, token in enumerate(CONTENT):
        yield {"text": token, "logprobs": {name: [values[place]] for name, values in choice["logprobs"].items()}}


def streamed(answer: dict[str, Any], wire: Wire) -> Stream:
    """Yield the events of an answer as a server sends them; those of several texts take turns."""
    common = {"id": answer["id"], "model": answer["model"], "object": "chunk", "usage": None}
    parts = [list(message_parts(choice, wire) if "message" in choice else text_parts(choice)) for choice in answer["choices"]]
    events = list[dict[str, Any]]()
    for place in range(max(map(len, parts))):
        for choice, own in zip(answer["choices"], parts, strict=True):
            finish = choice["finish_reason"] if place == len(own) - 1 else None
            events.append({**common, "choices": [{"index": choice["index"], "finish_reason": finish, "logprobs": None, **own[place]}]})
    if wire.has_usage_alone:
        events.append({**common, "choices": []})
    events[-1]["usage"] = answer["usage"]
    for event in events:
        yield wire.extra + wire.data + json.dumps(event, ensure_ascii=False).encode() + wire.end
    if wire.is_done_said:
        yield wire.data + b"[DONE]" + wire.end


CALLS = {
    "chat": (ASK, chat_answer()),
    "logprobs": (Generate(prompt=TURNS, decoding=SHORT, logprobs=True), chat_answer(logprobs=True, finish="length")),
    "thoughts": (ASK, chat_answer(thoughts="it is liquid ")),
    "texts": (Generate(prompt=TURNS, decoding=DRAWN, n=3, logprobs=True), chat_answer(logprobs=True, texts=3)),
    "completion": (Generate(prompt="A metal:", decoding=SHORT, logprobs=True), completion_answer()),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_streamed_answer_is_the_one_without_streaming(wire: str, call: str) -> None:
    answer, content = CALLS[call][1], b"".join(streamed(CALLS[call][1], WIRES[wire]))
    for size in (1, 7, len(content)):
        together = StreamedAnswer()
        for start in range(0, len(content), size):
            together.add(content[start : start + size])
        found = together.finish()
        assert {name: found[name] for name in answer} == answer


@pytest.mark.parametrize("wire", WIRES)
def test_replies_of_a_streaming_server_are_those_of_one_that_does_not_stream(wire: str) -> None:
    def find(body: dict[str, Any]) -> dict[str, Any]:
        if "prompt" in body:
            return completion_answer()
        return chat_answer(logprobs=bool(body.get("logprobs")), texts=body.get("n", 1), thoughts="it is ", finish="length")

    replies = list[list[Reply]]()
    for streams in (True, False):
        server = FakeServer(
            lambda path, body, streams=streams: streamed(find(body), WIRES[wire]) if streams else (200, find(body)),  # type: ignore[misc]
            WIRES[wire].pages,
        )
        with fake_serving(server) as url:
            model = OpenAIHttp("fake", url, options=FAST)
            found = model.run([call for call, _ in CALLS.values()])
            assert all(isinstance(reply, Reply) for reply in found)
            replies.append([reply._replace(seconds=None) for reply in found if isinstance(reply, Reply)])
            model.close()
        assert all(body["stream"] and body["stream_options"] == {"include_usage": True} for body in server.bodies)
    assert replies[0] == replies[1]
    assert replies[0][0].prompt_tokens > 0


def test_what_is_no_stream_of_an_answer() -> None:
    for content in (
        b'data: {"choices": 1}\n',
        b"data: {\n\n",
        b"data: {\ndata: ]\n\n",
        b'data: {"choices": [{"delta": {"content": 1}}]}\n',
    ):
        with pytest.raises(ValueError, match="."):
            StreamedAnswer().add(content)
    cut = StreamedAnswer()
    cut.add(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    with pytest.raises(EOFError, match="before the last token"):
        cut.finish()
    for content in (b'event: error\ndata: {"error": {"message": "no"}}\n', b'error: {"message": "no"}\n'):
        with pytest.raises(ReportedError):
            StreamedAnswer().add(content)


@pytest.mark.parametrize(("end", "last"), [(b"\n", b""), (b"\n", b"\n\n"), (b"\r\n", b"\r\n\r\n")])
def test_an_event_may_stand_in_several_lines(end: bytes, last: bytes) -> None:
    answer, wires = StreamedAnswer(), [{"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]} for text in ("a {", "b")]
    assert answer.add(b"data: " + json.dumps(wires[0]).encode() + end + end)
    lines = json.dumps(wires[1], indent=1).encode().replace(b"\n", end + b"data: ")
    assert answer.add(b": alive" + end + b"data: " + lines + last) == bool(last)
    assert (answer.whole(), answer.finish()["choices"][0]["message"]["content"]) == (None, "a {b")


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str, finish: str | None = None) -> bytes:
    return event(
        choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}], usage={"prompt_tokens": 1, "completion_tokens": 1}
    )


class Opened:
    """A fake server and a model at it."""

    def __init__(self, stack: ExitStack, server: FakeServer, **options: Any) -> None:  # noqa: ANN401 - options of any type
        self.server = server
        url = stack.enter_context(fake_serving(server))
        self.model = OpenAIHttp("fake", url, options=dataclasses.replace(FAST, **options))
        stack.callback(self.model.close)

    def ask(self) -> str:
        return gens(self.model.run([ASK])[0])[0].text

    def fail(self) -> str:
        return error_of(self.model.run([ASK])[0])


def test_a_long_answer_takes_longer_than_any_limit() -> None:
    def slowly(path: str, body: dict[str, Any]) -> Stream:
        for number in range(12):
            time.sleep(0.05)
            yield token(f"{number} ", "stop" if number == 11 else None)

    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(slowly), timeout=0.4, token_timeout=0.4)
        started = time.monotonic()
        assert opened.ask() == " ".join(map(str, range(12))) + " "
        assert time.monotonic() - started > 0.5
        assert len(opened.server.bodies) == 1


@pytest.mark.parametrize(("pages", "n_sent"), [(VLLM, 2), (LLAMA_CPP, 2), (UNKNOWN, 1), (LM_STUDIO, 1)])
def test_a_timed_out_request_is_sent_again_once_to_a_server_that_has_given_it_up(pages: Pages, n_sent: int) -> None:
    """The connection is closed, by which the server notices; of other servers nobody knows whether they still work."""

    def stall(path: str, body: dict[str, Any]) -> Stream:
        yield token("a")
        for _ in range(20):
            time.sleep(0.05)
            yield b": waiting\n\n"

    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(stall, pages), token_timeout=0.15, retries=5)
        said = opened.fail()
        assert "has sent no further token for 0.15 s: raise --token-timeout" in said
        assert len(opened.server.bodies) == n_sent
        assert ("(2 tries)" in said) == (n_sent == 2)
        while opened.server.n_abandoned < n_sent:
            time.sleep(0.01)


def stall_first(path: str, body: dict[str, Any]) -> Stream:
    time.sleep(0.2)
    yield token("a", "stop")


@pytest.mark.parametrize(
    ("answer", "n_sent", "said"),
    [(stall_first, 1, "has not answered within 0.1 s"), (lambda path, body: (200, {"choices": []}), 2, "no choices in {'choices': []}")],
)
def test_replicas_that_time_out_or_answer_no_texts_are_not_asked_forever(answer: Any, n_sent: int, said: str) -> None:  # noqa: ANN401
    with ExitStack() as stack:
        servers = [FakeServer(answer) for _ in range(2)]
        urls = [stack.enter_context(fake_serving(server)) for server in servers]
        options = dataclasses.replace(FAST, timeout=0.1, retries=5)
        model = open_llms(assign_models([f"answer=openai:m@{','.join(urls)}"], ["answer"]), Settings(options))["answer"]
        assert said in error_of(model.run([ASK])[0])
        model.close()
        assert [len(server.bodies) for server in servers] == [n_sent, n_sent]


def test_a_part_without_a_token_does_not_begin_an_answer() -> None:
    """OpenAI's cloud names the speaker at once, and thinks unseen before the first token."""

    def think(path: str, body: dict[str, Any]) -> Stream:
        yield event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        time.sleep(0.3)
        yield token("a", "stop")

    with ExitStack() as stack:
        assert Opened(stack, FakeServer(think), timeout=5.0, token_timeout=0.1).ask() == "a"
    with ExitStack() as stack:
        assert "has not answered within 0.1 s: lower --concurrency" in Opened(stack, FakeServer(think), timeout=0.1).fail()


@pytest.mark.parametrize("streams", [True, False])
def test_waiting_at_a_server_for_others_is_no_time_out(streams: bool) -> None:
    """24 requests at a time, to a server with 4 slots: the last ones wait for five others each, longer than the limit."""
    slots = threading.BoundedSemaphore(4)

    def serve() -> Stream:
        with slots:
            for number in range(3):
                time.sleep(0.03)
                yield token("a", "stop" if number == 2 else None)

    def answer(path: str, body: dict[str, Any]) -> Answer | Stream:
        if streams:
            return serve()
        list(serve())
        return chat("aaa")

    seconds = dict[int, float]()
    for concurrency in (4, 24):
        with ExitStack() as stack:
            opened = Opened(stack, FakeServer(answer), concurrency=concurrency, timeout=0.25, token_timeout=0.25, retries=0)
            started = time.monotonic()
            replies = opened.model.run([ASK] * 24)
            seconds[concurrency] = time.monotonic() - started
            assert [gens(reply)[0].text for reply in replies] == ["aaa"] * 24
            assert len(opened.server.bodies) == 24
    assert seconds[24] < 1.5 * seconds[4]


@pytest.mark.parametrize(
    ("error", "n_sent", "said"),
    [
        ({"message": "out of memory", "type": "server_error"}, 3, "answers an error: out of memory (3 tries)"),
        ({"message": "Conversation roles must alternate"}, 2, "refuses the request (400: Conversation roles must alternate)"),
        ({"message": "busy", "code": 503}, 3, "answers 503: busy (3 tries)"),
        ({"message": "no such tool", "code": 422}, 1, "refuses the request (422: no such tool)"),
    ],
)
def test_an_error_in_a_stream_is_read_as_an_answer_with_its_status(error: dict[str, Any], n_sent: int, said: str) -> None:
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: iter([token("a"), event(error=error)])))
        assert said in opened.fail()
        assert len(opened.server.bodies) == n_sent


def test_a_prompt_too_long_may_be_refused_in_a_stream() -> None:
    refused = event(error={"message": "This model's maximum context length is 20 tokens."})
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: iter([refused]), LM_STUDIO))
        assert isinstance(opened.model.run([ASK])[0], PromptTooLong)


def test_a_stream_that_breaks_off_is_tried_again() -> None:
    parts = [[token("a")], [token("a"), token("b", "stop")]]
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: iter(parts.pop(0))))
        assert opened.ask() == "ab"
        assert len(opened.server.bodies) == 2


def test_a_stream_that_ignores_the_maximum_of_tokens_is_ended_and_cut() -> None:
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: itertools.repeat(token("a "), 100_000)))
        gen = gens(opened.model.run([ASK])[0])[0]
        assert gen.finish == "length"
        n_tokens = opened.server.bodies[0]["max_tokens"]
        assert 8 * n_tokens < gen.text.count("a") < 8 * n_tokens + 3_000  # what has arrived together is read
        while not opened.server.n_abandoned:
            time.sleep(0.01)


@pytest.mark.parametrize("said", ["Unrecognized argument: 'stream'", "Streaming is not supported.", "stream is not supported"])
def test_a_server_that_does_not_stream_is_asked_without(said: str) -> None:
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: refusal(said) if "stream" in body else chat("a")))
        assert [opened.ask(), opened.ask()] == ["a", "a"]
        assert ["stream" in body for body in opened.server.bodies] == ["stream_options" in body for body in opened.server.bodies]
        assert ["stream" in body for body in opened.server.bodies] == [True, False, False]


def test_a_server_that_counts_no_tokens_in_streams_is_asked_without() -> None:
    uncounted = event(choices=[{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}])
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: iter([uncounted]) if "stream" in body else chat("a")))
        replies = [opened.model.run([ASK])[0] for _ in range(2)]
        assert [reply.completion_tokens for reply in replies if isinstance(reply, Reply)] == [1, 2]


def test_a_dialect_may_leave_streaming_out() -> None:
    with ExitStack() as stack:
        plain = dataclasses.replace(LLAMA_CPP_DIALECT, streams=False)
        opened = Opened(stack, FakeServer(lambda path, body: chat("a")), dialect=plain)
        assert opened.ask() == "a"
        assert not {"stream", "stream_options"} & set(opened.server.bodies[0])


def test_a_connection_is_used_again_after_a_stream() -> None:
    with ExitStack() as stack:
        opened = Opened(stack, FakeServer(lambda path, body: iter([token("a", "stop"), b"data: [DONE]\n\n"])), concurrency=1)
        assert [opened.ask() for _ in range(3)] == ["a"] * 3
        assert len(opened.server.ports) == 1

"""A fake of a language model's server, for tests: given answers in the dialect of vLLM, SGLang, llama.cpp, Ollama and others."""

from __future__ import annotations

import http.server
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.loopback import listening

Answer = tuple[int, Mapping[str, Any]]
"""A status and a body."""

Raw = tuple[int, bytes, str]
"""A status, a body, and its type of content."""

Stream = Iterator[bytes]
"""The parts of a stream of events, sent one by one."""

Pages = Mapping[str, Mapping[str, Any]]
"""Path -> answer of a GET."""

ONE = {"data": [{"id": "fake", "owned_by": "somebody"}]}
LLAMA_CPP: Pages = {
    "/v1/models": {"data": [{"id": "fake.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}]},
    "/props": {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4},
}
OLLAMA: Pages = {
    "/v1/models": {"data": [{"id": "fake:latest", "owned_by": "library"}]},
    "/api/version": {"version": "0.12.11"},
    "/api/ps": {"models": [{"name": "fake:latest", "context_length": 100}]},
}
LM_STUDIO: Pages = {
    "/v1/models": {"data": [{"id": "fake", "owned_by": "organization_owner"}]},
    "/api/v0/models": {"data": [{"id": "fake", "loaded_context_length": 4096, "max_context_length": 32768}]},
}
VLLM: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "vllm", "max_model_len": 4096}]}}
SGLANG: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "sglang", "max_model_len": 4096}]}}
TGI: Pages = {"/v1/models": ONE, "/info": {"model_id": "fake", "max_total_tokens": 2048, "max_concurrent_requests": 128}}
OPENAI: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "openai"}]}}
UNKNOWN: Pages = {"/v1/models": ONE}


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


def words(text: str) -> list[str]:
    """Return the parts of a text that are sent one by one if its tokens are unknown."""
    return re.findall(r"\s*\S+|\s+", text)


def message_parts(choice: dict[str, Any], wire: Wire) -> Iterator[dict[str, Any]]:
    """Yield the parts of a text of the chat API."""
    message, logprobs = choice["message"], (choice["logprobs"] or {}).get("content")
    if wire.first is not None:
        yield {"delta": wire.first}
    for word in words(message.get("reasoning_content") or ""):
        yield {"delta": {**wire.each, "reasoning_content": word}}
    tokens = [token["token"] for token in logprobs] if logprobs else words(message["content"])
    for place, token in enumerate(tokens):
        yield {"delta": {**wire.each, "content": token}, "logprobs": {"content": [logprobs[place]]} if logprobs else None}
    if wire.last is not None or not tokens:
        yield {"delta": wire.last or {}}


def text_parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a text of the completions API."""
    logprobs = choice["logprobs"]
    for place, token in enumerate(logprobs["tokens"] if logprobs else words(choice["text"]) or [""]):
        yield {"text": token, "logprobs": logprobs and {name: values[place : place + 1] for name, values in logprobs.items()}}


def streamed(answer: Mapping[str, Any], wire: Wire) -> Stream:
    """Yield the events of an answer as a server sends them; those of several texts take turns."""
    common = {"id": answer["id"], "model": answer["model"], "object": "chunk", "usage": None}
    parts = [list(message_parts(choice, wire) if "message" in choice else text_parts(choice)) for choice in answer["choices"]]
    events = list[dict[str, Any]]()
    for place in range(max(map(len, parts))):
        for choice, own in zip(answer["choices"], parts, strict=True):
            if place < len(own):
                finish = choice["finish_reason"] if place == len(own) - 1 else None
                events.append({**common, "choices": [{"index": choice["index"], "finish_reason": finish, "logprobs": None, **own[place]}]})
    if wire.has_usage_alone:
        events.append({**common, "choices": []})
    events[-1]["usage"] = answer["usage"]
    for event in events:
        yield wire.extra + wire.data + json.dumps(event, ensure_ascii=False).encode() + wire.end
    if wire.is_done_said:
        yield wire.data + b"[DONE]" + wire.end


class FakeServer:
    """The behaviour of the server.

    Attributes:
        answer: function from a path and a body to the answer of a POST, or a stream.
        pages: path -> answer of a GET; other paths answer 404.
        bodies, keys: bodies of the POST requests to completions of either API, and their keys.
        asked: paths of all requests, in order.
        ports: the clients' ports, one for each connection.
        n_abandoned: number of streams whose client has gone before their end.
    """

    def __init__(self, answer: Callable[[str, dict[str, Any]], Answer | Raw | Stream], pages: Pages | None = None) -> None:
        self.answer, self.pages = answer, pages or {}
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.asked: list[str] = []
        self.ports = set[int]()
        self.n_abandoned = 0


def chat(text: str | None, *, finish: str = "stop", logprobs: Any = None, **more: Any) -> Answer:  # noqa: ANN401 - JSON
    """Return an answer of the chat API; ``more`` are further fields of the message."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **more}, "logprobs": logprobs}
    return 200, {"choices": [choice], "model": "fake", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def event(**fields: object) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str, finish: str | None = None) -> bytes:
    """Return an event with a token of a chat."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event(choices=[choice], usage={"prompt_tokens": 1, "completion_tokens": 1})


def refusal(message: str, status: int = 400) -> Answer:
    """Return a refusal."""
    return status, {"error": {"message": message, "code": status}}


class _Handler(http.server.BaseHTTPRequestHandler):
    server_of: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        self.server_of.asked.append(self.path)
        page = self.server_of.pages.get(self.path)
        self._send(200 if page is not None else 404, {"error": "Not Found"} if page is None else page)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server_of.asked.append(self.path)
        if self.path.endswith("/completions"):
            self.server_of.keys.append(self.headers["authorization"])
            self.server_of.ports.add(self.client_address[1])
            self.server_of.bodies.append(body)
        answer = self.server_of.answer(self.path, body)
        if isinstance(answer, tuple):
            self._send(*answer)
        else:
            self._stream(answer)

    def _stream(self, parts: Stream) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for part in parts:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server_of.n_abandoned += 1
            self.close_connection = True

    def _send(self, status: int, body: Mapping[str, Any] | bytes, kind: str = "application/json") -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def fake_serving(server: FakeServer) -> Iterator[str]:
    """Serve on the loopback address; yield the URL of the API."""
    with listening(type("Handler", (_Handler,), {"server_of": server})) as url:
        yield f"{url}/v1"

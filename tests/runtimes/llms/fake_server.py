"""A fake of a language model's server, for tests: given answers in the dialect of vLLM, SGLang, llama.cpp, Ollama and others."""

from __future__ import annotations

import http.server
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.loopback import listening

Answer = tuple[int, Mapping[str, Any]]
"""A status and a body."""

Raw = tuple[int, bytes, str]
"""A status, a body, and its type of content."""

Stream = Iterator[bytes]
"""The parts of a stream of events, sent one by one."""


class FakeServer:
    """The behaviour of the server.

    Attributes:
        answer: function from a path and a body to the answer of a POST, or a stream.
        pages: path -> answer of a GET; other paths answer 404.
        bodies: bodies of the POST requests to completions of either API.
        asked: paths of all requests, in order.
        ports: the clients' ports, one for each connection.
        n_abandoned: number of streams whose client has gone before their end.
    """

    def __init__(
        self, answer: Callable[[str, dict[str, Any]], Answer | Raw | Stream], pages: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.answer, self.pages = answer, pages or {}
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.ports = set[int]()
        self.n_abandoned = 0


def chat(text: str | None, *, finish: str = "stop", logprobs: Any = None, **more: Any) -> Answer:  # noqa: ANN401 - JSON
    """Return an answer of the chat API; ``more`` are further fields of the message."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **more}, "logprobs": logprobs}
    return 200, {"choices": [choice], "model": "fake", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


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
            self.server_of.bodies.append(body)
            self.server_of.ports.add(self.client_address[1])
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

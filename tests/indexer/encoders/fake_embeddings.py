"""A fake of an embedding server, for tests: vectors of a given function, in the dialects of OpenAI, TEI, vLLM, Ollama and Infinity."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.loopback import listening
from wikidx.indexer.base import Vectors

Reply = tuple[int, Any]
"""A status, and a body to be sent as JSON."""


def hashed_vectors(texts: Sequence[str], dim: int = 8) -> Vectors:
    """Return a vector of length 1 for each text that depends on nothing else."""
    seeds = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts)
    vectors = np.stack([np.random.default_rng(seed).standard_normal(dim) for seed in seeds]).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


@dataclass
class FakeEmbeddings:
    """The behaviour of the server, and what it was asked.

    Attributes:
        embed: texts -> vectors.
        takes_base64: None: an unknown encoding_format is ignored, as by older Ollama; False: it is refused.
        max_texts: larger batches are refused with 413, as by TEI.
        max_characters: longer texts are refused with ``too_long``.
        too_long: status of this refusal: 413 in TEI, 400 in vLLM and OpenAI, 422 in Infinity, 500 in llama.cpp.
        refuse: body -> a refusal, or None.
        dies_after: requests that are answered; later connections are closed without an answer.
        faults: answers to the next requests: a status with a body and headers, or "drop" to close the connection.
        change: changes the rows of a reply.
        pages: path -> JSON of a GET.
        bodies: the bodies of the requests.
        keys: their Authorization headers.
        n_busy, most_busy: requests in progress, now and at most.
    """

    embed: Callable[[Sequence[str]], Vectors] = hashed_vectors
    takes_base64: bool | None = True
    max_texts: int = 2048
    max_characters: int = 1_000_000
    too_long: int = 400
    refuse: Callable[[Mapping[str, Any]], Reply | None] = lambda body: None
    dies_after: int | None = None
    faults: list[tuple[int, Any, Mapping[str, str]] | str] = field(default_factory=list)
    change: Callable[[list[dict[str, Any]]], Any] = lambda rows: rows
    pages: Mapping[str, Any] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    n_busy: int = 0
    most_busy: int = 0
    before_answer: Callable[[Mapping[str, Any]], object] = lambda body: None

    @property
    def batches(self) -> list[list[str]]:
        """The texts of each request."""
        return [body["input"] if isinstance(body["input"], list) else [body["input"]] for body in self.bodies]

    def answer(self, body: dict[str, Any]) -> Reply:
        """Return the reply to a request."""
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        if refusal := self.refuse(body):
            return refusal
        if len(texts) > self.max_texts:
            return 413, {"message": f"batch size {len(texts)} > maximum allowed batch size {self.max_texts}", "type": "Validation"}
        if longest := max((len(text) for text in texts if len(text) > self.max_characters), default=0):
            limit = self.max_characters
            message = f"This model's maximum context length is {limit} tokens. However, you requested {longest} tokens in the input."
            if self.too_long == 500:
                message = (
                    f"input ({longest} tokens) is too large to process. increase the physical batch size (current batch size: {limit})"
                )
            return self.too_long, {"object": "error", "message": message, "code": self.too_long}
        form = body.get("encoding_format", "float")
        if form == "base64" and self.takes_base64 is False:
            return 400, {"error": {"message": "encoding_format: base64 is not supported", "param": "encoding_format"}}
        vectors = self.embed(texts)[:, : body.get("dimensions")]
        as_base64 = form == "base64" and self.takes_base64
        rows = [
            {"object": "embedding", "index": n, "embedding": base64.b64encode(row.tobytes()).decode() if as_base64 else row.tolist()}
            for n, row in enumerate(vectors)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return 200, {"object": "list", "data": self.change(rows), "model": body["model"], "usage": usage}


class _Handler(http.server.BaseHTTPRequestHandler):
    fake: FakeEmbeddings
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        page = self.fake.pages.get(self.path)
        self._send(404 if page is None else 200, {"error": "Not Found"} if page is None else page, {})

    def do_POST(self) -> None:
        fake, body = self.fake, json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.lock:
            fake.bodies.append(body)
            fake.keys.append(self.headers["authorization"])
            fault = fake.faults.pop(0) if fake.faults else None
            if fake.dies_after is not None and len(fake.bodies) > fake.dies_after:
                fault = "drop"
            fake.n_busy += 1
            fake.most_busy = max(fake.most_busy, fake.n_busy)
        try:
            fake.before_answer(body)
            if fault == "drop":
                self.close_connection = True
            elif isinstance(fault, tuple):
                self._send(*fault)
            else:
                self._send(*fake.answer(body), {})
        finally:
            with self.lock:
                fake.n_busy -= 1

    def _send(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def fake_serving(fake: FakeEmbeddings, port: int = 0) -> Iterator[str]:
    """Serve on the loopback address; yield the URL of the API."""
    with listening(type("Handler", (_Handler,), {"fake": fake}), port) as url:
        yield f"{url}/v1"

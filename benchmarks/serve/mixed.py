"""Mixed load of concurrent clients: single questions, batches and groups, invalid requests, disconnecting clients, and status requests.

Every client is a thread that draws its requests from its own random generator, so that runs with the same seed send the same requests.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

RETRIEVERS = ("bm25", "minilm", "bm25+minilm")
_RULES = {"merge": ("max", "sum", "rrf", "interleave"), "dedup": ("row", "text"), "rerank": ("none", "primary")}
_KINDS = {"single": 40, "batch": 10, "groups": 15, "/retrieve": 10, "by id": 5, "wrong": 10, "gone": 5, "looked at": 5}
_PAGES = ("/health", "/ready", "/metrics", "/v1/indexes", "/")
_ANSWERS_OF_A_CONNECTION = 50
_TIMEOUT_S = 60.0
_OVERLOAD = (503, 504)  # acceptable on a busy machine


class Request(NamedTuple):
    """A request and the status expected for it; 0: the client disconnects before the answer."""

    kind: str
    path: str
    status: int = 200
    body: bytes | None = None


class RequestSampler:
    """Draws requests."""

    def __init__(self, questions: Sequence[str], retrievers: Sequence[str], rng: random.Random) -> None:
        self._questions, self._retrievers, self._rng = questions, retrievers, rng

    def request(self) -> Request:
        """Return the next request."""
        (kind,) = self._rng.choices(list(_KINDS), list(_KINDS.values()))
        if kind == "groups":
            rules = {name: self._rng.choice(values) for name, values in _RULES.items()}
            return self._search(kind, groups=[self._queries(4) for _ in range(self._rng.randint(1, 3))], **rules)
        if kind == "/retrieve":
            return Request(kind, kind, body=json.dumps({"queries": self._queries(4), "return_scores": True}).encode())
        if kind == "by id":
            return Request(kind, f"/v1/corpora/sample/passages?id=river-nile&id={self._rng.randrange(10**9)}")
        if kind == "wrong":
            return self._wrong(str(self._rng.randrange(10**9)))
        if kind == "looked at":
            return Request(kind, self._rng.choice(_PAGES))
        search = self._search(kind, queries=self._queries(1 if kind == "single" else 16))
        return search._replace(status=0 if kind == "gone" else 200)

    def _queries(self, most: int) -> list[str]:
        """Return questions with numbers, so that repetitions are rare."""
        return [f"{self._rng.choice(self._questions)} {self._rng.randrange(100_000)}" for _ in range(self._rng.randint(1, most))]

    def _search(self, kind: str, **fields: Any) -> Request:  # noqa: ANN401 - fields of a search
        body = {"retriever": self._rng.choice(self._retrievers), "k": self._rng.randint(1, 20), **fields}
        return Request(kind, "/v1/search", body=json.dumps(body).encode())

    def _wrong(self, anything: str) -> Request:
        bodies: list[tuple[str, int, bytes | None]] = [
            ("/v1/search", 400, b'{"queries": ["' + anything.encode()),
            ("/v1/search", 422, json.dumps({"queries": ["x"], anything: 1}).encode()),
            ("/v1/search", 422, json.dumps({"queries": ["x"], "k": 10**6}).encode()),
            ("/v1/search", 404, json.dumps({"queries": ["x"], "retriever": anything}).encode()),
            ("/v1/search", 413, b"x" * (17 << 20)) if self._rng.random() < 0.02 else ("/retrieve", 422, b"[]"),
            (f"/{anything}", 404, None),
            (f"/v1/corpora/{anything}/passages?id=1", 404, None),
        ]
        return Request("wrong", *self._rng.choice(bodies))


class MixedLoad:
    """Clients that send at a rate, or as fast as they are answered.

    Attributes:
        answers: number of answers, by kind of request.
        refused: number of these that reported overload or a missed deadline.
        wrong: of the others, those with an unexpected status, and requests without any answer.
    """

    def __init__(self, port: int, questions: Sequence[str], retrievers: Sequence[str], clients: int, rate: float) -> None:
        self._port, self._pause_s = port, clients / rate if rate else 0.0
        self._samplers = [RequestSampler(questions, retrievers, random.Random(number)) for number in range(clients)]
        self._end, self._counting = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self.answers, self.wrong = Counter[str](), Counter[str]()
        self.refused = 0

    def start(self) -> None:
        """Start sending, or resume."""
        self._end.clear()
        self._threads = [threading.Thread(target=self._client, args=(sampler,)) for sampler in self._samplers]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending; return when everything is answered and every connection closed."""
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _client(self, sampler: RequestSampler) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        n_answers, due = 0, time.monotonic()
        while not self._end.is_set():
            self._count(sampler.request(), connection)
            n_answers += 1
            if n_answers % _ANSWERS_OF_A_CONNECTION == 0:
                connection.close()  # the next request opens it again
            due = max(due + self._pause_s, time.monotonic() - 1)
            self._end.wait(max(0.0, due - time.monotonic()))
        connection.close()

    def _count(self, request: Request, connection: http.client.HTTPConnection) -> None:
        try:
            status = self._send(request, connection)
            reason = str(status)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            status, reason = -1, type(error).__name__
        with self._counting:
            self.answers[request.kind] += 1
            if status in _OVERLOAD:
                self.refused += 1
            elif status != request.status:
                self.wrong[f"{request.kind} {request.path}: {reason} instead of {request.status}"] += 1

    def _send(self, request: Request, connection: http.client.HTTPConnection) -> int:
        if not request.status:
            return self._disconnect(request, request.body or b"")
        connection.request("POST" if request.body else "GET", request.path, request.body)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def _disconnect(self, request: Request, body: bytes) -> int:
        """Send a request, whole or in part, and disconnect."""
        whole = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (request.path.encode(), len(body), body)
        with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_S) as gone:
            gone.sendall(whole[: len(whole) * (len(body) % 4) // 3])  # nothing, a third, two thirds, all of it
        return 0

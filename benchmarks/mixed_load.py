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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

RETRIEVERS = ("bm25", "minilm", "bm25+minilm")
_RULES = {"merge": ("max", "sum", "rrf", "interleave"), "dedup": ("row", "text"), "rerank": ("none", "primary")}
_ANSWERS_OF_A_CONNECTION = 50
_TIMEOUT_S = 60.0
_OVERLOAD = (503, 504)  # acceptable on a busy machine


class Request(NamedTuple):
    """A request and the status expected for it; 0: the client disconnects before the answer."""

    kind: str
    path: str
    status: int = 200
    body: bytes | None = None


class _RequestSampler:
    """Draws requests."""

    def __init__(self, questions: Sequence[str], retrievers: Sequence[str], rng: random.Random) -> None:
        self._questions, self._retrievers, self._rng = questions, retrievers, rng
        self._kinds: dict[Callable[[], Request], int] = {
            self._single: 40,
            self._batch: 10,
            self._groups: 15,
            self._search_r1: 10,
            self._by_id: 5,
            self._invalid: 10,
            self._disconnecting: 5,
            self._page_view: 5,
        }

    def request(self) -> Request:
        """Return the next request."""
        (kind,) = self._rng.choices(list(self._kinds), list(self._kinds.values()))
        return kind()

    def _question(self) -> str:
        """Return a question with a number, so that repetitions are rare."""
        return f"{self._rng.choice(self._questions)} {self._rng.randrange(100_000)}"

    def _sample_queries(self, most: int) -> list[str]:
        return [self._question() for _ in range(self._rng.randint(1, most))]

    def _search(self, kind: str, **fields: Any) -> Request:  # noqa: ANN401 - fields of a search
        body = {"retriever": self._rng.choice(self._retrievers), "k": self._rng.randint(1, 20), **fields}
        return Request(kind, "/v1/search", body=json.dumps(body).encode())

    def _single(self) -> Request:
        return self._search("single", queries=[self._question()])

    def _batch(self) -> Request:
        return self._search("batch", queries=self._sample_queries(16))

    def _groups(self) -> Request:
        rules = {name: self._rng.choice(values) for name, values in _RULES.items()}
        return self._search("groups", groups=[self._sample_queries(4) for _ in range(self._rng.randint(1, 3))], **rules)

    def _search_r1(self) -> Request:
        return Request("/retrieve", "/retrieve", body=json.dumps({"queries": self._sample_queries(4), "return_scores": True}).encode())

    def _by_id(self) -> Request:
        return Request("by id", f"/v1/corpora/sample/passages?id={quote('river-nile')}&id={self._rng.randrange(10**9)}", status=200)

    def _invalid(self) -> Request:
        anything = str(self._rng.randrange(10**9))
        chosen = self._rng.choice(
            [
                Request("wrong", "/v1/search", 400, b'{"queries": ["' + anything.encode()),
                Request("wrong", "/v1/search", 422, json.dumps({"queries": ["x"], anything: 1}).encode()),
                Request("wrong", "/v1/search", 422, json.dumps({"queries": ["x"], "k": 10**6}).encode()),
                Request("wrong", "/v1/search", 404, json.dumps({"queries": ["x"], "retriever": anything}).encode()),
                Request("wrong", "/v1/search", 413, b"x" * (17 << 20))
                if self._rng.random() < 0.02
                else Request("wrong", "/retrieve", 422, b"[]"),
                Request("wrong", f"/{anything}", 404),
                Request("wrong", f"/v1/corpora/{anything}/passages?id=1", 404),
            ]
        )
        return chosen

    def _disconnecting(self) -> Request:
        return self._search("gone", queries=self._sample_queries(16))._replace(status=0)

    def _page_view(self) -> Request:
        return Request("looked at", self._rng.choice(["/health", "/ready", "/metrics", "/v1/indexes", "/"]))


class MixedLoad:
    """Clients that send at a rate, or as fast as they are answered.

    Attributes:
        answers: number of answers, by kind of request.
        refused: number of these that reported overload or a missed deadline.
        wrong: of the others, those with an unexpected status, and requests without any answer.
    """

    def __init__(self, port: int, questions: Sequence[str], retrievers: Sequence[str], clients: int, rate: float) -> None:
        self._port, self._clients = port, clients
        self._pause_s = clients / rate if rate else 0.0
        self._samplers = [_RequestSampler(questions, retrievers, random.Random(number)) for number in range(clients)]
        self._end = threading.Event()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.answers = Counter[str]()
        self.refused = 0
        self.wrong = Counter[str]()

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

    def _client(self, sampler: _RequestSampler) -> None:
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
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            status = -1
            reason = type(error).__name__
        else:
            reason = str(status)
        with self._counting:
            self.answers[request.kind] += 1
            if status in _OVERLOAD:
                self.refused += 1
            elif status != request.status:
                self.wrong[f"{request.kind} {request.path}: {reason} instead of {request.status}"] += 1

    def _send(self, request: Request, connection: http.client.HTTPConnection) -> int:
        if not request.status:
            return self._disconnect(request)
        connection.request("POST" if request.body else "GET", request.path, request.body)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def _disconnect(self, request: Request) -> int:
        """Send a request, whole or in part, and disconnect."""
        body = request.body or b""
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (request.path.encode(), len(body))
        whole = head + body
        with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_S) as gone:
            gone.sendall(whole[: len(whole) * (len(body) % 4) // 3])  # nothing, a third, two thirds, all of it
        return 0

"""A server in a thread of the test's process, and requests that the client would never send."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.retrievers.retrieving import Forwarding, opener_of
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.cancellation import raise_if_cancelled
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.opening import OpenRetriever
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


def ask(url: str, path: str, body: object = None, *, method: str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Send one request on a connection of its own; a body that is not bytes is sent as JSON."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method or ("GET" if content is None else "POST"), path, content, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def search(url: str, **fields: Any) -> Answer:  # noqa: ANN401 - any JSON
    """Send a search."""
    return ask(url, "/v1/search", fields)


def retrieve(url: str, **fields: Any) -> Answer:  # noqa: ANN401
    """Send a search in Search-R1's form."""
    return ask(url, "/retrieve", fields)


def send_raw(url: str, *pieces: bytes, pause_s: float = 0.0, timeout_s: float = 30.0) -> bytes:
    """Send bytes, piece by piece, and return everything that comes until the server closes."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=timeout_s) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause_s)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(is_so: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait until a condition holds, with time for compiling kernels; fail on a time-out."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


def metrics(url: str) -> dict[str, float]:
    """Return all numbers of /metrics, as Prometheus's own reader finds them, by name and labels; see ``series``."""
    families = text_string_to_metric_families(ask(url, "/metrics").body.decode())
    return {series(sample.name, **sample.labels): sample.value for family in families for sample in family.samples}


def series(name: str, **labels: str) -> str:
    """Return the name of a number of /metrics with its labels."""
    return f"{name}{sorted(labels.items())}"


def count(url: str, name: str, **labels: str) -> float:
    """Return one number of /metrics; 0 if it is not there."""
    return metrics(url).get(series(name, **labels), 0.0)


@contextmanager
def running(service: Service, url: str, *, until_ready: bool = True) -> Iterator[str]:
    """Run a service in a thread; yield its address."""
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        if until_ready:
            wait_until(lambda: not thread.is_alive() or ask(url, "/ready").status == 200)
        yield url
    finally:
        service.stop()
        thread.join()


@contextmanager
def serving(settings: Settings, open_retriever: OpenRetriever | None = None, *, until_ready: bool = True) -> Iterator[str]:
    """Serve in a thread; yield the address."""
    listener = listen(settings)
    service = Service(settings, listener, Metrics(), open_retriever)
    with running(service, server_url(listener), until_ready=until_ready) as url:
        yield url


class Gated(Forwarding):
    """A retriever that the test can block, release, and make fail; it ends early if no client waits for it."""

    def __init__(self, retriever: Retriever) -> None:
        super().__init__(retriever)
        self.gate, self.is_busy = threading.Event(), threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        self.batches.append(list(queries))
        self.is_busy.set()
        while not self.gate.wait(0.01):
            raise_if_cancelled()
        if "lost" in queries:
            raise ShardUnavailable("shard 1 is lost")
        if "poison" in queries:
            raise RuntimeError("the backend is broken")
        return super().retrieve(queries, depth, params)

    def close_gate(self) -> None:
        """Block the next search."""
        self.batches.clear()
        self.is_busy.clear()
        self.gate.clear()


def open_gated(opened: list[Gated]) -> OpenRetriever:
    """Return an opener of retrievers that can be blocked, which are put into ``opened``."""

    def gate(retriever: Retriever) -> Retriever:
        opened.append(Gated(retriever))
        return opened[-1]

    return opener_of(gate)

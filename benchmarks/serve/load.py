"""A process that sends requests as fast as they are answered, or at a rate; ``python -m benchmarks.serve.load`` is that process.

It reads only the status and the length of an answer, to take as little as possible of the CPUs that it shares with the server.
Orders and reports are lines of JSON, on standard input and output.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

PERCENTS = (50, 95, 99)
_MAX_CONNECTIONS = 2_000
_BURST_S = 0.002
_AT_ONCE = 32
_DRAIN_S = 120.0


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """A load to send.

    Attributes:
        port: of the server, on this machine.
        path: of the requests.
        bodies: sent in turn.
        seconds: duration.
        clients: connections that each send one request after the other; 0: requests are sent at ``rate`` regardless of the answers.
        rate: requests per second.
    """

    port: int
    path: str
    bodies: Sequence[str]
    seconds: float
    clients: int = 0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """Answers to a load.

    Attributes:
        seconds: until the last answer.
        statuses: number of answers by status; "unsent": for lack of connections, "lost": without an answer.
        latencies_ms: percentiles, keyed like "50", of the answers with status 200.
        n_bytes: of all answers.
    """

    seconds: float
    statuses: Mapping[str, int]
    latencies_ms: Mapping[str, float]
    n_bytes: int

    @property
    def per_second(self) -> float:
        """Successful answers per second."""
        return self.statuses.get("200", 0) / self.seconds


def _percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    ascending = sorted(seconds)
    return {str(percent): 1000 * ascending[len(ascending) * percent // 100] if ascending else 0.0 for percent in PERCENTS}


class _Connection(asyncio.Protocol):
    """One connection; ``answered`` is called when an answer is complete."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._missing, self._is_chunked, self._tail = -1, False, b""
        self.status = ""
        self.send_requests = 0.0
        self.is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.send_requests, self.is_waiting = time.perf_counter(), True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._load.n_bytes += len(data)
        if self._missing < 0 and not self._is_chunked:
            data = self._tail + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._tail = data
                return
            head = data[:end].lower()
            self.status = head[9:12].decode()
            self._is_chunked = b"transfer-encoding: chunked" in head
            if not self._is_chunked:
                length = head.index(b"content-length: ") + 16
                self._missing = int(head[length : (head + b"\r").index(b"\r", length)])
            data, self._tail = data[end + 4 :], b""
        if self._is_chunked:
            self._tail = (self._tail + data)[-5:]
            is_whole = self._tail == b"0\r\n\r\n"
        else:
            self._missing -= len(data)
            is_whole = self._missing <= 0
        if is_whole:
            self._missing, self._is_chunked, self._tail = -1, False, b""
            self.is_waiting = False
            self._load.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost(self)


class _Load:
    """The requests of one order."""

    def __init__(self, order: LoadSpec) -> None:
        self._order = order
        head = f"POST {order.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
        self._requests = [(f"{head}{len(body.encode())}\r\n\r\n{body}").encode() for body in order.bodies]
        self._n_sent = self._n_open = 0
        self._idle = deque[_Connection]()
        self._done = asyncio.Event()
        self._latencies = list[float]()
        self._statuses = Counter[str]()
        self._end = 0.0
        self.n_bytes = 0

    async def run(self) -> Report:
        """Send, and wait until everything is answered."""
        n_connections = self._order.clients or int(min(_MAX_CONNECTIONS, 100 + 3 * self._order.rate))  # for answers within 3 s
        connections = list[_Connection]()
        while n_missing := n_connections - len(connections):
            connections += await asyncio.gather(*(self._connect() for _ in range(min(n_missing, _AT_ONCE))))
        started = time.perf_counter()
        self._end = started + self._order.seconds
        if self._order.clients:
            for connection in connections:
                self._send(connection)
        else:
            self._idle.extend(connections)
            await self._send_at_rate(started)
        if self._n_open:
            await asyncio.wait_for(self._done.wait(), self._order.seconds + _DRAIN_S)
        seconds = time.perf_counter() - started
        for connection in connections:
            connection.transport.close()
        self._statuses += Counter()  # without zeros
        return Report(seconds, dict(self._statuses), _percentiles_ms(self._latencies), self.n_bytes)

    def answered(self, connection: _Connection) -> None:
        """Record an answer; while there is time, a client sends its next request."""
        now = time.perf_counter()
        self._n_open -= 1
        self._statuses[connection.status] += 1
        if connection.status == "200":
            self._latencies.append(now - connection.send_requests)
        if self._order.clients and now < self._end:
            self._send(connection)
        else:
            self._idle.append(connection)
            self._end_if_done()

    def lost(self, connection: _Connection) -> None:
        """Record a connection closed by the server; an unanswered request is lost."""
        if connection in self._idle:
            self._idle.remove(connection)
        if connection.is_waiting:
            self._statuses["lost"] += 1
            self._n_open -= 1
            self._end_if_done()

    def _end_if_done(self) -> None:
        if not self._n_open and time.perf_counter() >= self._end:
            self._done.set()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._order.port)
        return connection

    def _send(self, connection: _Connection) -> None:
        self._n_open += 1
        self._n_sent += 1
        connection.send(self._requests[self._n_sent % len(self._requests)])

    async def _send_at_rate(self, started: float) -> None:
        """Send the requests that are due, every few milliseconds; those due while no connection is free are not sent."""
        n_due = 0
        while (now := time.perf_counter()) < self._end:
            n_now = int((now - started) * self._order.rate) + 1 - n_due
            n_due += n_now
            for _ in range(min(n_now, len(self._idle))):
                self._send(self._idle.popleft())
                n_now -= 1
            self._statuses["unsent"] += n_now
            await asyncio.sleep(_BURST_S)


def main() -> int:
    """Run the process."""
    for line in sys.stdin:
        report = uvloop.run(_Load(LoadSpec(**json.loads(line))).run())
        print(json.dumps(asdict(report)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

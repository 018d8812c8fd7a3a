"""Requests by urllib3: its connection pools, with a read time-out that limits the whole answer, headers and body.

urllib3's own read time-out limits each wait for more bytes, and never ends an answer that arrives byte by byte. ``limited`` replaces the
time-out by a limit that may move while the answer is read. ``PerProcess`` keeps connections from being shared with a forked process, which
would read the answers of the other.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import Enum, auto
from typing import Generic, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, IncompleteRead, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from wikidx.base.machine.failures import first_line
from wikidx.base.progress import format_bytes

Made = TypeVar("Made")

MAX_PAGE_BYTES = 4_000_000
"""Maximum size of a description, such as a list of models: that of a large cloud has almost 1 MB."""

_MAX_ANSWER_BYTES = 64_000_000
_READ_BYTES = 1 << 16
_MAX_REDIRECTS = 3
_LEAST_S = 0.001  # urllib3 refuses no time at all

_left_s: ContextVar[Callable[[], float] | None] = ContextVar("left_s", default=None)


@contextlib.contextmanager
def limited(left_s: Callable[[], float]) -> Iterator[None]:
    """Limit the answers to this thread's requests by a function that returns the seconds that are left, asked whenever they have passed."""
    token = _left_s.set(left_s)
    try:
        yield
    finally:
        _left_s.reset(token)


class _TimedReader(io.RawIOBase):
    """Reader of a socket, which raises ``TimeoutError`` when no time is left."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, left_s: Callable[[], float]) -> None:
        self._sock, self._raw, self._left_s = sock, raw, left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: collections.abc.Buffer
        while (left_s := self._left_s()) > 0:
            self._sock.settimeout(left_s)
            with contextlib.suppress(TimeoutError):  # the limit may have moved meanwhile
                return self._sock.recv_into(buffer)
        raise TimeoutError("timed out")

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        timeout_s = sock.gettimeout()
        if timeout_s is not None:
            deadline = time.monotonic() + timeout_s
            left_s = _left_s.get() or (lambda: deadline - time.monotonic())
            self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), left_s))


class _TimedConnection(HTTPConnection):
    response_class = _TimedResponse


class _TimedTLSConnection(HTTPSConnection):
    response_class = _TimedResponse


class _TimedPool(HTTPConnectionPool):
    ConnectionCls = _TimedConnection


class _TimedTLSPool(HTTPSConnectionPool):
    ConnectionCls = _TimedTLSConnection


TIMED_POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _TimedPool, "https": _TimedTLSPool}
"""URL scheme -> class of connection pools, as in ``urllib3.PoolManager.pool_classes_by_scheme``."""


class PerProcess(Generic[Made]):
    """Something with connections that each process makes for itself, because after a fork they belong to the parent.

    Args:
        make: function that makes it.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self.renew()

    def renew(self) -> None:
        """Make it again."""
        self._made, self._pid = self._make(), os.getpid()

    def get(self) -> Made:
        """Return that of this process."""
        if self._pid != os.getpid():
            self.renew()
        return self._made


Pool = PerProcess[urllib3.PoolManager] | PerProcess[urllib3.HTTPConnectionPool]


@contextlib.contextmanager
def answering(
    pool: Pool, method: str, url: str, timeout: urllib3.Timeout, body: bytes | None = None, max_bytes: float | None = None
) -> Iterator[tuple[urllib3.BaseHTTPResponse, Iterator[bytes]]]:
    """Send a request, following redirects on its server, and yield the answer, and its content in parts as they arrive.

    The connection is closed unless all are read.

    Raises:
        HTTPError: the connection fails, or the time limit is reached.
        ValueError: the answer is larger than ``max_bytes``; by default 64 MB, and 4 MB without a ``body``.
    """
    connections, total_s = pool.get(), timeout.total
    deadline = time.monotonic() + total_s if isinstance(total_s, float) else None
    for n_left in reversed(range(_MAX_REDIRECTS + 1)):
        with contextlib.closing(
            connections.request(method, url, body=body, timeout=timeout, retries=False, preload_content=False)
        ) as response:
            target = urljoin(url, response.headers.get("Location", "nowhere:")) if n_left and response.status in (307, 308) else ""
            if not target or not _is_same_server(connections, target, url):
                yield response, _read_parts(response, max_bytes or (_MAX_ANSWER_BYTES if body else MAX_PAGE_BYTES))
                return
        url = urlunsplit(("", "", *urlsplit(target)[2:])) if url.startswith("/") else target
        if deadline is not None:
            timeout = urllib3.Timeout(total=max(_LEAST_S, deadline - time.monotonic()))


def _is_same_server(connections: urllib3.PoolManager | HTTPConnectionPool, target: str, url: str) -> bool:
    if isinstance(connections, HTTPConnectionPool):
        return connections.is_same_host(target) and not target.startswith("//")
    return urlsplit(target)[:2] == urlsplit(url)[:2]


def _read_parts(response: urllib3.BaseHTTPResponse, max_bytes: float) -> Iterator[bytes]:
    n_bytes = 0
    while part := response.read1(_READ_BYTES):
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise ValueError(f"it has more than {format_bytes(int(max_bytes))}")
        yield part


def read_answer(
    pool: Pool, method: str, url: str, timeout_s: float, body: bytes | None = None, max_bytes: float | None = None
) -> tuple[urllib3.BaseHTTPResponse, bytes]:
    """Send a request once, and return the answer and its content. Raises as ``answering``, after ``timeout_s``."""
    with answering(pool, method, url, urllib3.Timeout(total=float(timeout_s)), body, max_bytes) as (response, parts):
        return response, b"".join(parts)


class Trouble(Enum):
    """Kinds of failures of a request without a whole answer."""

    UNREACHABLE = auto()
    LATE = auto()
    BROKEN = auto()
    NOT_HTTP = auto()


def explain(error: HTTPError) -> tuple[Trouble, str]:
    """Return what kind of failure an error of ``answering`` is, and its cause in words."""
    cause = error.args[-1] if isinstance(error, ProtocolError) else error.__cause__ or error
    if isinstance(error, UrllibTimeoutError) and not isinstance(error, NewConnectionError):
        return Trouble.LATE, first_line(cause)
    if isinstance(error, IncompleteRead) or isinstance(cause, http.client.IncompleteRead):
        return Trouble.BROKEN, "the server closed it before its answer was whole"
    if is_closed(error):
        return Trouble.BROKEN, "the server closed it without an answer"
    if isinstance(cause, http.client.HTTPException):
        return Trouble.NOT_HTTP, first_line(cause)
    said = cause.strerror if isinstance(cause, OSError) and cause.strerror else first_line(cause)
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER_FAILURE" in said:
        said = f"no TLS is spoken there: try http:// in place of https:// ({said})"
    return Trouble.UNREACHABLE if isinstance(error, NewConnectionError) else Trouble.BROKEN, said


def is_closed(error: HTTPError) -> bool:
    """Return whether the server closed the connection before the first byte of its answer."""
    return isinstance(error, ProtocolError) and isinstance(error.args[-1], http.client.RemoteDisconnected | ConnectionError)

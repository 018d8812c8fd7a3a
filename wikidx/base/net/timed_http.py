"""urllib3's connection pools, with a read time-out that limits the whole answer, headers and body.

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
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

Made = TypeVar("Made")

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

    def connect(self) -> None:
        super().connect()
        _connections.add(self)


class _TimedTLSConnection(HTTPSConnection):
    response_class = _TimedResponse


_connections = weakref.WeakSet[_TimedConnection]()


def disconnect(port: int) -> None:
    """End the connections without TLS to a port, so that requests in progress fail at once."""
    for connection in list(_connections):
        if connection.port == port and connection.sock is not None:
            with contextlib.suppress(OSError):  # already closed
                connection.sock.shutdown(socket.SHUT_RDWR)


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

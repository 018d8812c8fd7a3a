"""urllib3's connection pools, with a read time-out that limits the whole answer, headers and body.

urllib3's own read time-out limits each wait for more bytes, and never ends an answer that arrives byte by byte.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import time
import weakref

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection


class _TimedReader(io.RawIOBase):
    """Reader of a socket, which raises ``TimeoutError`` when ``timeout_s`` seconds have passed since the reader's creation."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, timeout_s: float) -> None:
        self._sock, self._raw, self._timeout_s = sock, raw, timeout_s
        self._deadline = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]  # typeshed: collections.abc.Buffer
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(self._timeout_s)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        timeout_s = sock.gettimeout()
        if timeout_s is not None:
            self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), timeout_s))


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

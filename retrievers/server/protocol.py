"""uvicorn's HTTP protocol, with JSON answers to malformed requests."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from httptools import HttpRequestParser
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from wikidx.retrievers.errors import InvalidRequest

from .front import GONE, error_response

_LINGER_S = 2.0  # time in which a client can finish sending and read the refusal


class Protocol(HttpToolsProtocol):
    """The protocol of one connection.

    A malformed request is refused in JSON, after the answers to the requests before it. Further input is read and dropped, because closing
    a connection with unread input can destroy the answer. uvicorn itself answers in plain text, and closes the connection at once. A wish
    for another protocol is ignored.
    """

    _is_refused = False

    def data_received(self, data: bytes) -> None:
        """Parse input; after a refusal, drop it."""
        rest: Any = memoryview(data)
        while rest and not self._is_refused:
            self._n_parsed = len(rest)
            super().data_received(rest)
            rest = rest[self._n_parsed :]

    def _should_upgrade(self) -> bool:
        """Return whether a request wishes for another protocol, as uvicorn asks before it calls ``handle_websocket_upgrade``."""
        return self.scope["method"] != "CONNECT"

    def handle_websocket_upgrade(self) -> None:
        """Ignore the wish for another protocol, such as HTTP/2 (RFC 9110, 7.8).

        The parser has skipped the body, so that the request is parsed again without the wish. uvicorn calls this while it handles the
        parser's exception, which has the number of bytes before the body.
        """
        self._n_parsed = cast(Exception, sys.exception()).args[0]
        line = b"%s %s HTTP/%s" % (self.scope["method"].encode(), self.url, self.parser.get_http_version().encode())
        headers = (b"%s: %s" % header for header in self.headers if header[0] != b"upgrade")
        self.parser = HttpRequestParser(self)  # the other one is dead after a request with "Connection: close"
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        super().data_received(b"\r\n".join([line, *headers, b"", b""]))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection: all its requests know of its end, so that none needs a task of its own that waits for it."""
        super().connection_made(transport)
        self._gone = self.loop.create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        super().connection_lost(exc)
        self._gone.set_result(None)

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self.scope["state"][GONE] = self._gone
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request; uvicorn calls this method at the first wrong byte."""
        self._is_refused = True
        self.flow.resume_reading()
        cycle: RequestResponseCycle | None = self.cycle  # None at the first request of a connection
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            self._refuse()
        elif not cycle.more_body:  # the request before the malformed one is being answered
            cycle.keep_alive = False
        elif self.pipeline:  # the malformed request waits for the answers to earlier requests
            self.pipeline[0] = (cycle, cast(Any, _refusal()))  # Starlette's types are wider than uvicorn's
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse()

    def _refuse(self) -> None:
        response = _refusal()
        headers = (b"%s: %s\r\n" % header for header in response.raw_headers)
        self.transport.write(b"".join([b"HTTP/1.1 400 Bad Request\r\n", *headers, b"\r\n", bytes(response.body)]))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)


def _refusal() -> Response:
    reason = "the request is not valid HTTP: its first line, a header or the size of a chunk is malformed"
    response = error_response(InvalidRequest(reason, status=400))
    response.headers["connection"] = "close"
    return response

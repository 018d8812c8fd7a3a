"""uvicorn's HTTP protocol, with limits on the head of a request, and JSON answers to malformed requests."""

from __future__ import annotations

import asyncio
import sys
from itertools import chain
from typing import Any, cast

from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from wikidx.retrievers.errors import InvalidRequest

from .gate import GONE, add_page_headers, error_response

_MAX_HEAD_BYTES = 64 << 10
_MAX_HEADERS = 100
_TOO_LONG = InvalidRequest(f"a request's head has at most {_MAX_HEAD_BYTES:,} bytes and {_MAX_HEADERS} headers", status=431)
_MALFORMED = InvalidRequest("the request is not valid HTTP: its first line, a header or the size of a chunk is malformed", status=400)
_LINGER_S = 2.0  # time in which a client can finish sending and read the refusal


class Protocol(HttpToolsProtocol):
    """The protocol of one connection.

    A malformed request ends the connection, with a refusal in JSON unless an answer is being sent. Further input is read and dropped,
    because closing a connection with unread input can destroy the refusal. A wish for another protocol is ignored.
    """

    _is_refused = False
    _problem = _MALFORMED  # why a request is refused
    _n_unparsed = 0  # bytes since the last whole head or part of a body, which the parser keeps

    def data_received(self, data: bytes) -> None:
        """Parse input; after a refusal, drop it."""
        rest: Any = memoryview(data)
        while rest and not self._is_refused:
            self._n_parsed = len(rest)
            self._n_unparsed += len(rest)
            super().data_received(rest)
            rest = rest[self._n_parsed :]
            if self._n_unparsed > _MAX_HEAD_BYTES and not self._is_refused:
                self._problem = _TOO_LONG
                self.send_400_response("")

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

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._n_unparsed = 0
        super().on_body(body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection: all its requests know of its end, so that none needs a task of its own that waits for it."""
        super().connection_made(transport)
        self._gone = self.loop.create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        super().connection_lost(exc)
        self._gone.set_result(None)

    def on_headers_complete(self) -> None:
        """Begin a request; an error here has uvicorn refuse it."""
        self._n_unparsed = 0
        if len(self.headers) > _MAX_HEADERS or len(self.url) + sum(map(len, chain(*self.headers))) > _MAX_HEAD_BYTES:
            self._problem = _TOO_LONG
            raise ValueError(_TOO_LONG)
        self.scope["state"][GONE] = self._gone
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request; uvicorn calls this method at the first wrong byte."""
        self._is_refused = True
        self.flow.resume_reading()
        cycle: RequestResponseCycle | None = self.cycle  # None at the first request of a connection
        if cycle is not None and not cycle.response_complete:  # nothing is sent for it any more
            cycle.disconnected = True
            cycle.message_event.set()
        if not self.pipeline and (cycle is None or cycle.response_complete or not cycle.response_started):
            response = error_response(self._problem)
            response.headers["connection"] = "close"
            add_page_headers(response.raw_headers)
            headers = (b"%s: %s\r\n" % header for header in response.raw_headers)
            self.transport.write(b"".join([STATUS_LINE[response.status_code], *headers, b"\r\n", bytes(response.body)]))
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)

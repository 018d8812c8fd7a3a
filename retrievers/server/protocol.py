"""uvicorn's HTTP protocol, with JSON answers to malformed requests, and limits on the head of a request."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

from httptools import HttpRequestParser
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from wikidx.retrievers.errors import InvalidRequest

from .gate import GONE, add_page_headers, error_response

_MAX_HEAD_BYTES = 64 << 10
_MAX_HEADERS = 100
_TOO_LONG = InvalidRequest(f"a request's head has at most {_MAX_HEAD_BYTES:,} bytes and {_MAX_HEADERS} headers", status=431)
_TWO_HOSTS = InvalidRequest("the request has several Host headers: send one", status=400)
_MALFORMED = InvalidRequest("the request is not valid HTTP: its first line, a header or the size of a chunk is malformed", status=400)
_LINGER_S = 2.0  # time in which a client can finish sending and read the refusal


class Protocol(HttpToolsProtocol):
    """The protocol of one connection.

    A malformed request is refused in JSON, after the answers to the requests before it. Further input is read and dropped, because closing
    a connection with unread input can destroy the answer. uvicorn itself answers in plain text, and closes the connection at once. A wish
    for another protocol is ignored.
    """

    _is_refused = False
    _problem = _MALFORMED  # why a request is refused
    _n_unparsed = 0  # bytes since the last part of a request was whole, which the parser keeps
    _n_head = 0  # bytes of the head

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

    def on_message_begin(self) -> None:
        """Begin the head of a request."""
        super().on_message_begin()
        self._n_head = self._n_unparsed = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, also one after a body in chunks; an error here has uvicorn refuse the request."""
        super().on_header(name, value)
        self._n_unparsed = 0
        self._n_head += len(name) + len(value)
        if self._n_head + len(self.url) > _MAX_HEAD_BYTES or len(self.headers) > _MAX_HEADERS:
            self._problem = _TOO_LONG
            raise ValueError(_TOO_LONG)

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
        """Begin a request."""
        if [name for name, _ in self.headers].count(b"host") > 1:
            self._problem = _TWO_HOSTS
            raise ValueError(_TWO_HOSTS)
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
            self.pipeline[0] = (cycle, cast(Any, _refusal(self._problem)))  # Starlette's types are wider than uvicorn's
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse()

    def _refuse(self) -> None:
        response = _refusal(self._problem)
        headers = (b"%s: %s\r\n" % header for header in response.raw_headers)
        self.transport.write(b"".join([STATUS_LINE[response.status_code], *headers, b"\r\n", bytes(response.body)]))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)


def _refusal(problem: InvalidRequest) -> Response:
    response = error_response(problem)
    response.headers["connection"] = "close"
    add_page_headers(response.raw_headers)
    return response

"""The outer ASGI application: it refuses requests that may not be answered, passes on all others, and counts and logs every one.

The checks are functions of a request's headers, so that ``idx mcp`` and ``idx view`` share them.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from wikidx.base.net.endpoint import check_key
from wikidx.retrievers.errors import InvalidRequest, NotReady, ServiceError, Unauthorized, http_status, to_json, to_openai_json
from wikidx.retrievers.wire import EMBEDDINGS, RETRIEVE, SEARCH

from .bodies import start_compression

if TYPE_CHECKING:
    from .access_log import AccessLog
    from .catalog import Catalog
    from .metrics import Metrics
    from .settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

CLIENT_GONE = 499  # nginx's status for a client that has disconnected
GONE = "gone"  # in the state of a request: a future that is done when the client has disconnected
JSON = "application/json"

_OPEN_PATHS = ("/health", "/ready", "/", "/ask", "/openapi.json")  # paths that need no key
_OPEN_PREFIXES = ("/page/",)  # files of the search page, which need no key because they contain no data
_QUEUED_PATHS = (SEARCH, RETRIEVE, EMBEDDINGS)

# The latter is ignored in the policy in a page's text.
_POLICY, _NO_FRAME = b"content-security-policy", b"frame-ancestors 'none'"
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_OF_PAGES = ((_POLICY, _NO_FRAME), _NO_SNIFF)
_OF_OTHERS = ((_POLICY, b"default-src 'none'; " + _NO_FRAME), _NO_SNIFF)


class _RecordingSend:
    """Wrapper of an ASGI ``send`` that adds headers, compresses a long response, and records the status and size that are sent."""

    def __init__(self, scope: Message, send: Send, *, closes_connection: bool) -> None:
        self._scope, self._send, self._closes_connection = scope, send, closes_connection
        self.status = self.n_bytes = 0
        self.is_whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            add_page_headers(message["headers"])
            if self._closes_connection:
                message["headers"].append((b"connection", b"close"))
            self._compress = start_compression(self._scope, message)
        else:
            if self._compress is not None:
                message = {**message, "body": await run_in_threadpool(self._compress, message)}
            self.n_bytes += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
        await self._send(message)


class Gate:
    """The whole server as an ASGI application around its ``routes``.

    Attributes:
        is_stopping: whether to close every connection after its next answer.
    """

    def __init__(self, settings: Settings, metrics: Metrics, log: AccessLog, catalog: Catalog, routes: Application) -> None:
        self._key = None if settings.api_key is None else check_key(settings.api_key).encode()
        self._local_host = settings.host if self._key is None and not settings.insecure else None
        self._metrics, self._log, self._catalog, self._routes = metrics, log, catalog, routes
        self.is_stopping = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        started = time.perf_counter()
        if scope["path"] != "/":
            scope["path"] = scope["path"].removesuffix("/")  # not every client repeats a POST that is redirected
        recording = _RecordingSend(scope, send, closes_connection=self.is_stopping)
        refusal = self._refusal(scope)
        try:
            await (self._routes if refusal is None else error_response(refusal, scope["path"]))(scope, receive, recording)
        except asyncio.CancelledError:  # the grace period at shutdown is over
            if not recording.status:
                await error_response(NotReady(self._catalog.ending or "the server ends"), scope["path"])(scope, receive, recording)
        finally:
            status, seconds = recording.status if recording.is_whole else CLIENT_GONE, time.perf_counter() - started
            self._metrics.count_request(scope["path"], status, seconds)
            self._log.add(scope, status, recording.n_bytes, seconds)

    def _refusal(self, scope: Message) -> ServiceError | None:
        """Return why a request is not answered, before its body is read, as without memory for it; None if it is."""
        path, headers = scope["path"], scope["headers"]
        if [name for name, _ in headers].count(b"host") > 1:
            return InvalidRequest("the request has several Host headers: send one", status=HTTPStatus.BAD_REQUEST, connection="close")
        if not (path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES)):
            if self._key is not None and (unauthorized := unauthorized_error(headers, self._key)):
                return unauthorized
            if self._local_host is not None and (foreign := foreign_host_error(headers, self._local_host)):
                return foreign
        if scope["method"] != "POST" or path not in _QUEUED_PATHS:
            return None
        return self._catalog.memory.overload_error(int(dict(headers).get(b"content-length", 0)))


def unauthorized_error(headers: Headers, key: bytes) -> Unauthorized | None:
    """Return the error for a request whose headers have neither ``Authorization: Bearer KEY`` nor ``X-API-Key: KEY``; None if one has."""
    for name, value in headers:
        scheme, _, given = value.partition(b" ")
        # Schemes are case-insensitive (RFC 9110, 11.1)
        if name == b"authorization" and scheme.lower() == b"bearer":
            value = given.strip()
        elif name != b"x-api-key":
            continue
        if hmac.compare_digest(value, key):
            return None
    return Unauthorized("this server requires its API key, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")


def foreign_host_error(headers: Headers, host: str) -> InvalidRequest | None:
    """Return the error for a request whose ``Host`` or ``Origin`` is neither this machine nor ``host``; None if both are allowed.

    A foreign web page must not use a server without a key through a browser on this machine. ``Host`` reveals a page that reaches the
    server under the page's own name (DNS rebinding); ``Origin`` reveals a page that sends a form.
    """
    for name, value in headers:
        if name in (b"host", b"origin") and not _is_local(value, host):
            return InvalidRequest(
                f"{name.decode().title()} {value.decode('latin-1')!r:.80} is not this machine: without a key the server answers to "
                f"localhost, 127.0.0.1, [::1] and {host} only; give it a key in IDX_API_KEY, or use --insecure to let anybody search",
                status=HTTPStatus.FORBIDDEN,
            )
    return None


@lru_cache(256)
def _is_local(value: bytes, host: str) -> bool:
    """Return whether the value of ``Host`` or ``Origin`` is a loopback address, localhost, or the bound host."""
    address = value.decode("latin-1")
    try:
        name = urlsplit(address if "//" in address else f"//{address}").hostname or ""
        return name in ("localhost", host.lower()) or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def add_page_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """Add the headers by which browsers run nothing in an answer that is no page, and show no page in a frame.

    Pages have the rest of their policy in their text.
    """
    is_page = any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
    headers += _OF_PAGES if is_page else _OF_OTHERS


def error_response(error: Exception, path: str = "") -> Response:
    """Return the response to a failed request; clients of OpenAI's paths expect its format, and the status 400 for all invalid fields."""
    headers = dict(error.headers) if isinstance(error, ServiceError) else {}
    if isinstance(error, ServiceError) and error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    status = http_status(error)
    if path != EMBEDDINGS:
        return Response(orjson.dumps(to_json(error)), status, headers, JSON)
    status = HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status
    return Response(orjson.dumps(to_openai_json(error)), status, headers, JSON)

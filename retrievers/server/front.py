"""The outer ASGI application, which checks, counts and logs all requests, and passes accepted requests to FastAPI's application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from wikidx.retrievers.errors import NotReady, ServiceError, Unauthorized, http_status, to_json, to_openai_json
from wikidx.retrievers.wire import EMBEDDINGS, RETRIEVE, SEARCH

from .access_log import AccessLog
from .api_key import ApiKey
from .bodies import start_compression
from .catalog import Catalog
from .host_check import foreign_host_error
from .metrics import Metrics
from .page_headers import add_page_headers
from .settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

POLL_S = 0.1  # interval at which a request that waits for what is being opened looks again
CLIENT_GONE = 499  # nginx's status for a client that has disconnected
GONE = "gone"  # in the state of a request: a future that is done when the client has disconnected
JSON = "application/json"
HEALTH = "/health"
ALIVE = b'{"alive":true}'
OPEN_PATHS = (HEALTH, "/ready", "/", "/ask", "/openapi.json")  # paths that need no key
OPEN_PREFIXES = ("/page/",)  # files of the search page, which need no key because they contain no data


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


class Front:
    """The whole server as an ASGI application.

    Raises:
        InputError: the API key is empty.

    Attributes:
        is_stopping: whether to close every connection after its next answer.
        pages: the application of ``pages``; None until FastAPI is imported, which takes longer than a probe of /health waits.
    """

    def __init__(self, settings: Settings, metrics: Metrics, log: AccessLog, catalog: Catalog) -> None:
        self._key = None if settings.api_key is None else ApiKey(settings.api_key)
        self._local_host = settings.host if self._key is None and not settings.insecure else None
        self._metrics, self._log, self._catalog = metrics, log, catalog
        self.is_stopping = False
        self.pages: Application | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        started = time.perf_counter()
        recording = _RecordingSend(scope, send, closes_connection=self.is_stopping)
        try:
            await self._answer(scope, receive, recording)
        except asyncio.CancelledError:  # the grace period at shutdown is over
            if not recording.status:
                await error_response(NotReady(self._catalog.ending or "the server ends"), scope["path"])(scope, receive, recording)
        finally:
            status, seconds = recording.status if recording.is_whole else CLIENT_GONE, time.perf_counter() - started
            self._metrics.count_request(scope["path"].removesuffix("/"), status, seconds)
            self._log.add(scope, status, recording.n_bytes, seconds)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        while _may_wait(scope) and self.pages is None and self._catalog.ending is None:  # some seconds
            await asyncio.sleep(POLL_S)
        response = self._early_response(scope["path"], scope)
        if response is not None:
            await response(scope, receive, send)
        elif self.pages is not None:
            # Paths that answer GET also answer HEAD: uvicorn leaves out the body.
            await self.pages({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, receive, send)

    def _early_response(self, path: str, scope: Message) -> Response | None:
        """Return the response to a request that ``pages`` must not or cannot answer; None for all other requests.

        A request that would wait is refused here, before its body is read, if there is no memory for it.
        """
        is_public = path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)
        if self._key is not None and not is_public and not self._key.authorizes(scope["headers"]):
            return error_response(self._key.unauthorized_error(), path)
        if self._local_host is not None and not is_public and (foreign := foreign_host_error(scope["headers"], self._local_host)):
            return error_response(foreign, path)
        if self.pages is None:
            alive = Response(ALIVE, media_type=JSON)
            return alive if path == HEALTH else error_response(self._catalog.not_ready("the server has just been started"), path)
        n_bytes = int(dict(scope["headers"]).get(b"content-length", 0)) if _may_wait(scope) else 0
        return error_response(full, path) if n_bytes and (full := self._catalog.memory.overload_error(n_bytes)) else None


def _may_wait(scope: Message) -> bool:
    """Return whether a request waits until its index is open and others before it are answered."""
    return scope["method"] == "POST" and scope["path"].removesuffix("/") in (SEARCH, RETRIEVE, EMBEDDINGS)


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

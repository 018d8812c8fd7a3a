"""The ASGI application around FastAPI's: checks keys, refuses searches when queues are full, logs and counts every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from starlette.responses import Response

from wikidx.retrievers.errors import NotReady, ServiceError, Unauthorized, status_of, to_json
from wikidx.retrievers.wire import RETRIEVE, SEARCH

from .access_log import AccessLog
from .api_key import ApiKey
from .catalog import Catalog
from .local_names import refuse_foreign
from .metrics import Metrics
from .settings import Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

CLIENT_GONE = 499  # as nginx logs it
JSON = "application/json"
HEALTH = "/health"
ALIVE = b'{"alive":true}'
OPEN_PATHS = (HEALTH, "/ready", "/", "/docs", "/openapi.json")  # need no key; neither do ...
OPEN_PREFIXES = ("/page/",)  # ... the page's own files: none of them holds data


class _Watched:
    """Forwards the messages of an application, and records their status and size."""

    def __init__(self, send: Send, *, closes: bool) -> None:
        self._send, self._closes = send, closes
        self.status = self.n_bytes = 0
        self.is_whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._closes:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        else:
            self.n_bytes += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
        await self._send(message)


class Front:
    """The whole server as an ASGI application.

    Raises:
        InputError: the API key is empty.

    Attributes:
        is_ending: closes every connection after its next answer.
        pages: all paths; None until FastAPI is imported, which takes longer than a /health probe waits.
    """

    def __init__(self, settings: Settings, metrics: Metrics, log: AccessLog, catalog: Catalog) -> None:
        self._key = None if settings.api_key is None else ApiKey(settings.api_key)
        self._local_host = settings.host if self._key is None and not settings.insecure else None
        self._metrics, self._log, self._catalog = metrics, log, catalog
        self.is_ending = False
        self.pages: Application | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        started = time.perf_counter()
        watched = _Watched(send, closes=self.is_ending)
        try:
            await self._answer(scope, receive, watched)
        except asyncio.CancelledError:  # the server ends, and its grace period for this request is over
            if not watched.status:
                await refusal(NotReady("the server ends"))(scope, receive, watched)
        finally:
            status, seconds = watched.status if watched.is_whole else CLIENT_GONE, time.perf_counter() - started
            self._metrics.count_request(scope["path"], status, seconds)
            self._log.add(scope, status, watched.n_bytes, seconds)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        response = self._at_once(scope["path"], scope)
        if response is not None:
            await response(scope, receive, send)
        elif self.pages is not None:
            # GET paths also answer HEAD: uvicorn leaves out the body.
            await self.pages({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, receive, send)

    def _at_once(self, path: str, scope: Message) -> Response | None:
        """Return the answer to a request that is answered without the application; None for others."""
        is_open = path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)
        if self._key is not None and not is_open and not self._key.is_in(scope["headers"]):
            return refusal(self._key.missing())
        if self._local_host is not None and not is_open and (foreign := refuse_foreign(scope["headers"], self._local_host)):
            return refusal(foreign)
        if self.pages is None:
            is_alive = Response(ALIVE, media_type=JSON)
            return is_alive if path == HEALTH else refusal(NotReady("the server has just been started", retry_after=1))
        if self._catalog.is_full and path in (SEARCH, RETRIEVE) and scope["method"] == "POST":
            return refusal(self._catalog.overload())
        return None


def refusal(error: Exception) -> Response:
    """Return the response to a failed request."""
    headers = {}
    if isinstance(error, ServiceError) and error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    return Response(orjson.dumps(to_json(error)), status_of(error), headers, JSON)

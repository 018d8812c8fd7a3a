"""Run the tools over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn

from wikidx.retrievers.errors import Unauthorized, to_json
from wikidx.retrievers.server.api_key import ApiKey
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
_SHUTDOWN_S = 2


def run_stdio(server: MCPServer[Any]) -> None:
    """Answer on standard output what comes on standard input, until that ends; whatever else is printed goes to standard error."""
    server.run("stdio")


def run_http(server: MCPServer[Any], listening: socket.socket, settings: Settings) -> None:
    """Answer at ``/mcp`` of a socket that ``settings.listen`` made, until the process is told to end."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True, host=settings.host)
    if settings.api_key is not None:
        app = _Locked(app, ApiKey(settings.api_key))
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_SHUTDOWN_S)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


class _Locked:
    """An application that answers only those who bring the key."""

    def __init__(self, app: ASGIApp, key: ApiKey) -> None:
        self._app, self._key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._key.is_in(scope["headers"]):
            await self._app(scope, receive, send)
            return
        body = orjson.dumps(to_json(Unauthorized("this server wants its API key, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")))
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": Unauthorized.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

"""Run the tools over streamable HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from wikidx.retrievers.server.api_key import ApiKey
from wikidx.retrievers.server.front import refusal
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
_SHUTDOWN_S = 2


def run_http(server: MCPServer[Any], listening: socket.socket, settings: Settings) -> None:
    """Serve ``/mcp`` on a socket of ``settings.listen`` until the process is told to end."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True, host=settings.host)
    if settings.api_key is not None:
        app = _locked(app, ApiKey(settings.api_key))
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_SHUTDOWN_S)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _locked(app: ASGIApp, key: ApiKey) -> ASGIApp:
    """Return an application that answers only requests with the key."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or key.is_in(scope["headers"]):
            await app(scope, receive, send)
        else:
            await refusal(key.missing())(scope, receive, send)

    return answer

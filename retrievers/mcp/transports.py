"""Streamable HTTP, a transport of the tools."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from wikidx.retrievers.server.gate import error_response, unauthorized_error
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
_SHUTDOWN_S = 2


def run_http(server: MCPServer[Any], listener: socket.socket, settings: Settings) -> None:
    """Serve ``/mcp`` on a listening socket until SIGINT or SIGTERM."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True, host=settings.host)
    if settings.api_key is not None:
        app = _require_key(app, settings.api_key.encode())
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_SHUTDOWN_S)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def _require_key(app: ASGIApp, key: bytes) -> ASGIApp:
    """Return an application that passes on requests with the key, and refuses all others."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = unauthorized_error(scope["headers"], key) if scope["type"] == "http" else None
        await (app if refusal is None else error_response(refusal))(scope, receive, send)

    return answer

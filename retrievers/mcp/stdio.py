"""Standard input and output, a transport of the tools."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

if TYPE_CHECKING:
    from anyio.abc import ObjectSendStream
    from mcp.server.lowlevel import Server
    from mcp.shared._stream_protocols import ReadStream, WriteStream

_Line = SessionMessage | Exception


async def serve_stdio(server: Server[Any]) -> None:
    """Serve standard input and output, and answer each line that is no message: the mcp library drops it, and its sender would wait."""
    async with stdio_server() as (lines, answers), anyio.create_task_group() as group:
        inlet, messages = anyio.create_memory_object_stream[_Line]()
        group.start_soon(_pass_messages, lines, inlet, answers)
        await server.run(messages, answers, server.create_initialization_options())


async def _pass_messages(lines: ReadStream[_Line], inlet: ObjectSendStream[_Line], answers: WriteStream[SessionMessage]) -> None:
    async with inlet:
        async for line in lines:
            message = _read_again(line) if isinstance(line, ValidationError) else line
            await (answers.send(_refusal(message)) if isinstance(message, Exception) else inlet.send(message))


def _read_again(error: ValidationError) -> _Line:
    """Return the message of a line with U+FFFD in place of halves of characters, which models write; the error if it still is none."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        text = json.dumps(json.loads(error.errors()[0]["input"]), ensure_ascii=False)
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
    return error


def _refusal(error: Exception) -> SessionMessage:
    """Return the answer to a line that is no message, with its id if that can be read."""
    found: Any = error.errors()[0] if isinstance(error, ValidationError) else {"msg": error, "input": ""}
    reason = ErrorData(code=PARSE_ERROR, message=f"this line is no message of JSON-RPC: {found['msg']}")
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        id_ = json.loads(found["input"], parse_int=lambda digits: int(digits[:99])).get("id")
        str(id_).encode()  # refuses halves of characters, which no answer can hold
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=reason))
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=reason))

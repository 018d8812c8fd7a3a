"""The lines of a training file, in the chat format that TRL and LLaMA-Factory read.

    {"messages": [{"role": "system", "content": "…"}, {"role": "user", …}, {"role": "assistant", …}], "id": "…", "provenance": {…}}

Provenance is a flat object with the same names and types in every line, which the ``datasets`` package needs to read a file as one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from wikidx.runtimes.llms.base import Chat, Message

from .base import Example


def conversation(prompt: Chat, target: str) -> Chat:
    """Return a prompt with the turn that answers it."""
    return (*(Message(message.role, message.content) for message in prompt), Message("assistant", target))


def line_of(example: Example) -> dict[str, Any]:
    """Return an example as JSON has it."""
    messages = [{"role": message.role, "content": message.content} for message in example.messages]
    return {"messages": messages, "id": example.id, "provenance": dict(example.provenance)}


def json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return objects as JSON Lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()

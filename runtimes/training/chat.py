"""The lines of a training file, in the chat format that TRL and LLaMA-Factory read.

    {"messages": [{"role": "system", "content": "…"}, {"role": "user", …}, {"role": "assistant", …}], "id": "…", "provenance": {…}}

``check_lines`` is the schema, stated: what both trainers take, and what the ``datasets`` package needs to read a file as one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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


def written(examples: Iterable[Example]) -> bytes:
    """Return the content of a training file, its lines checked; raises as ``check_lines`` does."""
    lines = [line_of(example) for example in examples]
    check_lines(lines)
    return json_lines(lines)


def json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return objects as JSON Lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def check_lines(lines: Sequence[Mapping[str, Any]]) -> None:
    """Check the lines of a file.

    A line has "messages", "id" and "provenance" and nothing else. Messages have "role" and "content", texts that are not blank: a system
    message or none, then user and assistant by turns, the user first and the assistant last. Ids are texts and unique. Provenance is a flat
    object that has the same names and types in every line.

    Raises:
        ValueError: a line is otherwise; the message says which and how.
    """
    ids: dict[str, int] = {}
    shape: dict[str, str] | None = None
    for number, line in enumerate(lines, 1):
        if set(line) != {"messages", "id", "provenance"}:
            raise ValueError(f"line {number} has the fields {sorted(line)}, not messages, id and provenance")
        _check_messages(line["messages"], number)
        if not isinstance(line["id"], str) or line["id"] in ids:
            raise ValueError(f"line {number} has the id {line['id']!r}, which is no text or is that of line {ids.get(line['id'])} too")
        ids[line["id"]] = number
        found = {name: _type(value) for name, value in line["provenance"].items()}
        shape = found if shape is None else shape
        if found != shape:
            raise ValueError(f"line {number} has the provenance {found}, and lines before it {shape}")


def _check_messages(messages: Sequence[Mapping[str, Any]], number: int) -> None:
    roles = [message.get("role") for message in messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if not turns or turns != (["user", "assistant"] * len(turns))[: len(turns)] or turns[-1] != "assistant":
        raise ValueError(f"line {number} has the turns {roles}: user and assistant take turns, after a system message or none")
    for message in messages:
        content = message.get("content")
        if set(message) != {"role", "content"} or not isinstance(content, str) or not content.strip():
            raise ValueError(f"line {number} has the message {dict(message)!r:.80}: it has a role and a content that is not blank")


def _type(value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return "list of texts"
    if isinstance(value, str | bool | int | float):
        return type(value).__name__
    raise ValueError(f"provenance has the value {value!r:.60}: it is a text, a number, a truth value or a list of texts")

"""Answers that come in parts, put together to the answer that the same request gets at once.

A stream consists of server-sent events, each a line ``data: JSON`` with a part of the answer. The JSON may stand in several such lines,
which an empty one ends. Servers differ in the space after the colon, in the ends of lines, in comments between events, and in the event
that has the numbers of tokens: the last one, with or without choices.
An answer without events is one JSON value, whatever type of content the server announces. The content of a message may be a list of parts.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any

from wikidx.base.artifacts.durable import parse_json

from .json_shape import find_mismatch, matching
from .repetition import CHECKED_TOKENS, is_endless_text

_LOGPROB = int | float | None
_TOKEN = {"token": str, "logprob": _LOGPROB, "top_logprobs": [{"token": str, "logprob": int | float}]}
_LOGPROBS = {
    "content": [_TOKEN],
    "tokens": [str],
    "token_logprobs": [_LOGPROB],
    "text_offset": [int],
    "top_logprobs": [dict | None],
}
MESSAGE = {"content": str | list}
OPTIONAL = {"finish_reason": str, "logprobs": _LOGPROBS, "usage": {}}
"""Shape of the fields without which an answer is still one."""

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_EVENT = {"choices": [{"index": int, "delta": MESSAGE, "message": MESSAGE, "text": str}]}


class ReportedError(Exception):
    """An error that the server reports in a stream, or in an answer of status 200. ``body`` is the error as JSON."""

    def __init__(self, body: object) -> None:
        super().__init__(body)
        self.body = body


def find_error(answer: Mapping[str, Any]) -> object:
    """Return the error that an answer, an event of one, or one of its choices reports; None if none does."""
    return next((part["error"] for part in (answer, *(answer.get("choices") or ())) if part.get("error")), None)


def flatten_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its content as one text, if it is a list of parts. ``left_out`` has the types of parts that are no text."""
    message = {"left_out": [], **matching(message, {"left_out": [str], "refusal": str})}
    content = message.get("content")
    if not isinstance(content, list):
        return message
    objects = [part for part in content if isinstance(part, Mapping)]
    thoughts = _join([part["thinking"] for part in objects if "thinking" in part])
    others = [str(part.get("type")) for part in objects if not isinstance(part.get("text", part.get("thinking")), str | list)]
    return {**message, "content": _join(content), "left_out": others} | ({"reasoning_content": thoughts} if thoughts else {})


def _join(parts: Any) -> str:  # noqa: ANN401 - JSON
    """Return the texts of a part, or of a list of parts, joined."""
    if isinstance(parts, list):
        return "".join(map(_join, parts))
    text = parts.get("text") if isinstance(parts, Mapping) else parts
    return text if isinstance(text, str) else ""


class StreamedAnswer:
    """An answer that comes in parts, as events or as one JSON value.

    Attributes:
        is_done: whether the stream has said that it ends.
        n_parts: number of parts of texts, also of empty ones.
    """

    def __init__(self) -> None:
        self.is_done, self._has_events, self.n_parts = False, False, 0
        self._latest, self._n_checked = "", 0  # the text that has grown last; the number of parts at the last check for a loop
        self._fields, self._choices = dict[str, Any](), dict[int, dict[str, Any]]()
        # The beginning of a line; the lines of an event of several; lines that are no events.
        self._rest, self._data, self._others = list[bytes](), list[bytes](), list[bytes]()

    def add(self, content: bytes) -> bool:
        """Add content of the stream, cut anywhere. Return whether it has a further token of the answer.

        Raises:
            ReportedError: the server reports an error.
            ValueError: an event has an unexpected form.
        """
        self._rest.append(content)
        if b"\n" not in content:
            return False
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        return any([self._add_line(line) for line in lines])

    def whole(self) -> bytes | None:
        """Return the content of an answer that has not come as events; None if it has."""
        self.add(b"\n\n")  # the last event may have no end
        return None if self._has_events else b"\n".join(self._others)

    def is_endless(self) -> bool:
        """Return whether the latest text repeats itself; False between the checks."""
        if self.n_parts < self._n_checked + CHECKED_TOKENS:
            return False
        self._n_checked = self.n_parts
        return is_endless_text(self._latest)

    def cut(self) -> None:
        """End the texts here, as cut ones. A part counts as a token if the server has counted none."""
        self._rest, self._data = [], []
        self._fields.setdefault("usage", {"completion_tokens": self.n_parts})
        for choice in self._choices.values():
            choice["finish_reason"] = choice["finish_reason"] or "length"

    def finish(self) -> dict[str, Any]:
        """Return the answer that has come as events, after ``whole``.

        Raises:
            EOFError: the stream has ended too early.
        """
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not self.is_done and not all(choice["finish_reason"] for choice in choices):
            raise EOFError("the stream ended before the last token")
        return {**self._fields, "choices": choices}

    def _add_line(self, line: bytes) -> bool:
        field, _, value = line.partition(b":")
        field, value = field.removeprefix(codecs.BOM_UTF8), value.strip()
        if field == b"data" and (self._data or value.count(b"{") > value.count(b"}")):
            self._data.append(value)
            return False
        if self._data and not line.strip():
            field, value, self._data = b"data", b"\n".join(self._data), []
        if field not in (b"data", b"error") or not value:  # comments, names of events, lines of a whole answer
            self._others.append(line)
            return False
        self._has_events = True
        if value == b"[DONE]":
            self.is_done = True
            return False
        event = parse_json(value)
        if wrong := find_mismatch(event, _EVENT, "an event"):
            raise ValueError(wrong)
        if error := event if field == b"error" else find_error(event):  # the former of old versions of llama.cpp
            raise ReportedError({"error": error})
        self._fields |= {name: field for name, field in event.items() if field is not None and name != "choices"}
        return any([self._add_part(part) for part in event.get("choices") or ()])

    def _add_part(self, part: dict[str, Any]) -> bool:
        """Add a part of one text. Return whether it has a token, or the end of the text."""
        index = part.get("index") or 0
        choice = self._choices.setdefault(index, {"index": index, "finish_reason": None, "logprobs": None})
        part = matching(part, OPTIONAL)
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
        for name, values in (part.get("logprobs") or {}).items():
            known = choice["logprobs"] = choice["logprobs"] or {}
            known[name] = [*(known.get(name) or ()), *values] if isinstance(values, list) else known.get(name, values)
        delta = part.get("delta", part.get("message"))
        if delta is None:
            target, texts = choice, {"text": part.get("text") or ""}
        else:
            target, delta = choice.setdefault("message", {"role": "assistant", "content": "", "left_out": []}), flatten_parts(delta)
            target["left_out"] += delta["left_out"]
            texts = {name: delta[name] for name in _TEXTS if isinstance(delta.get(name), str)}
        for name, text in texts.items():
            target[name] = self._latest = (target.get(name) or "") + text
        self.n_parts += 1
        return bool(part.get("finish_reason") or any(texts.values()))

"""Streamed answers, put together to the answer that the same request gets without streaming.

A stream consists of server-sent events, each a line ``data: JSON`` with a part of the answer. Servers differ in the space after the colon,
in the ends of lines, in comments between events, and in the event that has the numbers of tokens: the last one, with or without choices.
"""

from __future__ import annotations

from typing import Any

from wikidx.corpora.artifacts.durable import parse_json

from .json_shape import find_mismatch

_TEXTS = ("content", "reasoning_content", "reasoning")
_ENDINGS = (None, "stop", "length")  # reasons to finish that leave an answer without text an empty text
_EVENT = {
    "choices": [
        {
            "index": int,
            "delta": dict.fromkeys(_TEXTS, str),
            "text": str,
            "finish_reason": str,
            "logprobs": {"content": list, "tokens": list, "token_logprobs": list, "text_offset": list, "top_logprobs": list},
        }
    ]
}


class StreamError(Exception):
    """An error of the server in the middle of a stream. ``body`` is the error as JSON."""

    def __init__(self, body: object) -> None:
        super().__init__(body)
        self.body = body


class StreamedAnswer:
    """An answer that comes in parts.

    Attributes:
        is_done: whether the stream has said that it ends.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._rest, self._fields, self._choices = b"", dict[str, Any](), dict[int, dict[str, Any]]()

    def add(self, content: bytes) -> bool:
        """Add content of the stream, cut anywhere. Return whether it has a further token of the answer.

        Raises:
            StreamError: the server reports an error.
            ValueError: an event has an unexpected form.
        """
        *lines, self._rest = (self._rest + content).split(b"\n")
        return any([self._add_line(line) for line in lines])

    def finish(self) -> dict[str, Any]:
        """Return the answer.

        Raises:
            ValueError: the stream has ended too early.
        """
        self.add(b"\n")  # the last line may have no end
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not self.is_done and not all(choice["finish_reason"] for choice in choices):
            raise ValueError("the stream ended before the last token")
        for choice in choices:
            message = choice.get("message")
            if message is not None and not message["content"]:
                message["content"] = "" if choice["finish_reason"] in _ENDINGS else None
        return {**self._fields, "choices": choices}

    def _add_line(self, line: bytes) -> bool:
        field, _, value = line.partition(b":")
        value = value.strip()
        if field not in (b"data", b"error") or not value:  # comments, names of events
            return False
        if value == b"[DONE]":
            self.is_done = True
            return False
        event = parse_json(value)
        if field == b"error" or (isinstance(event, dict) and event.get("error")):  # the former of old versions of llama.cpp
            raise StreamError(event)
        if wrong := find_mismatch(event, _EVENT, "an event"):
            raise ValueError(wrong)
        self._fields |= {name: field for name, field in event.items() if field is not None and name != "choices"}
        return any([self._add_part(part) for part in event.get("choices") or ()])

    def _add_part(self, part: dict[str, Any]) -> bool:
        """Add a part of one text. Return whether it has a token, or the end of the text."""
        index = part.get("index") or 0
        choice = self._choices.setdefault(index, {"index": index, "finish_reason": None, "logprobs": None})
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
        for name, values in (part.get("logprobs") or {}).items():
            known = choice["logprobs"] = choice["logprobs"] or {}
            known[name] = [*(known.get(name) or ()), *values] if values else known.get(name, values)
        delta = part.get("delta")
        if delta is None:
            target, texts = choice, {"text": part.get("text") or ""}
        else:
            target = choice.setdefault("message", {"role": "assistant", "content": None})
            texts = {name: delta[name] for name in _TEXTS if delta.get(name)}
        for name, text in texts.items():
            target[name] = (target.get(name) or "") + text
        return bool(part.get("finish_reason") or any(texts.values()))

"""Incremental parsing of large JSON files, one value at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from wikidx.base.errors import InputError

MAX_VALUE_CHARACTERS = 1 << 26  # maximum length of one value

_CHUNK_BYTES = 1 << 20
_TAIL = 2  # characters that a parsed number may leave unread if the text is cut off: "1e+" parses as 1
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonText:
    """An incremental parser of JSON text in UTF-8.

    Args:
        read: the file's read method, which returns at most the given number of bytes.
        name: the file's name, for error messages.
        start: bytes already read from the file.
        line: the line number of the first of these.

    Attributes:
        line: the line number of the next character, from 1.
    """

    def __init__(self, read: Callable[[int], bytes], name: str, start: bytes = b"", line: int = 1) -> None:
        self._read, self._name, self._unread = read, name, start
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._position, self._has_ended = "", 0, False
        self.line = line

    def peek(self) -> str:
        """Return the next non-blank character without consuming it; "" at the end."""
        while True:
            blank = _BLANK.match(self._text, self._position)
            self._advance(blank.end() if blank else self._position)
            if self._position < len(self._text) or self._has_ended:
                return self._text[self._position : self._position + 1]
            self._read_more(_CHUNK_BYTES)

    def expect(self, expected: str) -> None:
        """Consume the next non-blank character, which must be ``expected``.

        Raises:
            InputError: another character follows, or the text ends.
        """
        character = self.peek()
        if character != expected:
            raise InputError(
                f"{self._name}, line {self.line}: {repr(character) if character else 'the end'} where JSON has {expected!r}: {_ADVICE}"
            )
        self._advance(self._position + 1)

    def parse_value(self) -> Any:  # noqa: ANN401 - JSON
        """Parse the next value.

        Raises:
            InputError: the value is not JSON, or is longer than ``MAX_VALUE_CHARACTERS``.
        """
        self.peek()
        size = _CHUNK_BYTES
        while True:
            is_whole = self._has_ended or len(self._text) - self._position > MAX_VALUE_CHARACTERS
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except (ValueError, RecursionError) as error:
                if is_whole:
                    line = self.line + self._text.count("\n", self._position, getattr(error, "pos", self._position))
                    raise InputError(f"{self._name}, line {line}: not JSON ({getattr(error, 'msg', error)}): {_ADVICE}") from error
            else:
                if end + _TAIL < len(self._text) or is_whole:
                    self._advance(end)
                    return value
            self._read_more(size)
            size *= 2

    def keys(self) -> Iterator[str]:
        """Yield the keys of the object that follows. The caller must parse the value of a key before it requests the next key.

        Raises:
            InputError: the text is no object, or a key is no text.
        """
        self.expect("{")
        is_first = True
        while self.peek() != "}":
            if not is_first:
                self.expect(",")
            is_first = False
            line = self.line
            key = self.parse_value()
            if not isinstance(key, str):
                raise InputError(f"{self._name}, line {line}: {key!r:.40} where JSON has a name in quotes: {_ADVICE}")
            self.expect(":")
            yield key
        self.expect("}")

    def check_end(self) -> None:
        """Raise ``InputError`` unless the text ends."""
        if character := self.peek():
            problem = f"{character!r} after the end of the JSON: write one array, or one record per line"
            raise InputError(f"{self._name}, line {self.line}: {problem}")

    def _advance(self, end: int) -> None:
        self.line += self._text.count("\n", self._position, end)
        self._position = end

    def _read_more(self, size: int) -> None:
        chunk, self._unread = self._unread or self._read(size), b""
        try:
            text = self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise InputError(f"{self._name}, after line {self.line}: not UTF-8 ({error.reason}): convert the file") from error
        self._has_ended = not chunk
        self._text = self._text[self._position :] + text
        self._position = 0


_ADVICE = "fetch the file again, or correct it there"

"""Incremental parsing of large JSON: values are parsed one after the other while the text is read."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

from wikidx.corpora.errors import InputError

LONGEST = 1 << 26  # maximum of characters of one value

_CHUNK = 1 << 20
_TAIL = 2  # characters at the end of a truncated number, such as "e+", before which it would look complete
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonText:
    """A JSON text in UTF-8.

    Args:
        read: returns at most the given number of bytes of the file.
        name: of the file, for messages.
        begun: the bytes already read from it.

    Attributes:
        line: line of the next character, from 1.
    """

    def __init__(self, read: Callable[[int], bytes], name: str, begun: bytes = b"") -> None:
        self._read, self._name, self._begun = read, name, begun
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._has_ended = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """Return the next non-blank character; "" at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._move(blank.end() if blank else self._at)
            if self._at < len(self._text) or self._has_ended:
                return self._text[self._at : self._at + 1]
            self._more(_CHUNK)

    def take(self, expected: str) -> None:
        """Consume the next non-blank character; raise ``InputError`` if it is not the expected one."""
        found = self.peek()
        if found != expected:
            raise InputError(f"{self._name}, line {self.line}: {repr(found) if found else 'the end'} where JSON has {expected!r}: {_MEND}")
        self._move(self._at + 1)

    def value(self) -> Any:  # noqa: ANN401 - JSON
        """Parse the next value.

        Raises:
            InputError: it is not JSON, or longer than ``LONGEST``.
        """
        self.peek()
        size = _CHUNK
        while True:
            is_whole = self._has_ended or len(self._text) - self._at > LONGEST
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if is_whole:
                    line = self.line + self._text.count("\n", self._at, getattr(error, "pos", self._at))
                    raise InputError(f"{self._name}, line {line}: not JSON ({getattr(error, 'msg', error)}): {_MEND}") from error
            else:
                if end + _TAIL < len(self._text) or is_whole:
                    self._move(end)
                    return value
            self._more(size)
            size *= 2

    def _move(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self, size: int) -> None:
        chunk, self._begun = self._begun or self._read(size), b""
        try:
            text = self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise InputError(f"{self._name}, behind line {self.line}: not UTF-8 ({error.reason}): convert the file") from error
        self._has_ended = not chunk
        self._text = self._text[self._at :] + text
        self._at = 0


_MEND = "fetch the file again, or mend it there"

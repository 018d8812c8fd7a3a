"""Reading of records from JSON Lines, a JSON array, a JSON object that contains records, or a tab-separated table.

The form is detected from the content. Plain and compressed files are read incrementally, so skipped parts take no memory.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from wikidx.corpora.artifacts.durable import parse_json
from wikidx.corpora.errors import InputError
from wikidx.corpora.reading.compression import open_decompressed, read_lines

from .json_text import JsonText

_DETECTION_BYTES = 1 << 16  # maximum number of bytes of the first line that determine the form
_CONTAINERS = frozenset(
    {"Data", "data", "examples", "train", "dev", "test"}
)  # the records of TriviaQA, SQuAD, BIG-bench and ASQA are values of these keys
_QUESTION_KEYS = frozenset({"question", "Question", "input", "claim"})  # an object with one of these keys is itself a record
_BEGINS_OBJECT = re.compile(r'\{\s*("(Data|Domain|Split|VerifiedEval|Version|data|version|examples|canary|train|dev|test)"\s*:|$)')
_BEGINS_ARRAY = re.compile(r"\[\s*(\{|\]|$)")
_HEADER_COLUMNS = frozenset({"question", "message", "claim"})  # a first row with one of these values is a header


class Record(NamedTuple):
    """A record from a file.

    Attributes:
        value: the JSON value. A table row is a dict by column name if the table has a header, else a tuple.
        file: the file's name.
        position: "line n", or the record's number and line.
        number: the line number in JSON Lines or a table, else the record's number in the array or object; from 1.
        path: the keys that lead to the record in a JSON object, outermost first.
    """

    value: Any
    file: str
    position: str
    number: int
    path: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """File and position, for error messages."""
        return f"{self.file}, {self.position}"


def read_records(path: Path) -> Generator[Record]:
    """Yield the records of a file, in file order. Closing the generator closes the file.

    Raises:
        InputError: the file cannot be read, or a line or record is invalid.
    """
    with open_decompressed(path) as file:
        yield from _detect_records(file, str(path))


def _detect_records(file: IO[bytes], name: str) -> Iterator[Record]:
    blank = list[bytes]()
    first = file.readline(_DETECTION_BYTES)
    while first and not first.strip():
        blank.append(b"\n")
        first = file.readline(_DETECTION_BYTES)
    start = first.decode("utf-8-sig", "replace").strip()
    unread = b"".join(blank) + first if blank else first
    if _BEGINS_ARRAY.match(start):
        return _read_array(JsonText(file.read, name, unread), name)
    if _holds_records(start):
        return _read_object(JsonText(file.read, name, unread), name)
    lines = itertools.chain(blank, read_lines(file, name, first))
    return _read_lines(lines, name) if start.startswith(("{", "[")) or not start else _read_table(lines, name)


def _holds_records(start: str) -> bool:
    """Return whether a file that begins with ``start`` is one JSON object that contains records."""
    if not start.startswith("{"):
        return False
    with contextlib.suppress(ValueError):
        whole = parse_json(start)
        return _QUESTION_KEYS.isdisjoint(whole) and any(isinstance(whole.get(name), list | dict) and whole[name] for name in _CONTAINERS)
    return _BEGINS_OBJECT.match(start) is not None


def _read_lines(lines: Iterable[bytes], name: str) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except ValueError as error:
            problem = f'not JSON in UTF-8 ({error}): each line is {{"id", "question", "golden_answers"}}'
            raise InputError(f"{name}, line {number}: {problem}, or a record of another known format") from error
        yield Record(value, name, f"line {number}", number)


def _read_array(text: JsonText, name: str, path: tuple[str, ...] = ()) -> Iterator[Record]:
    text.expect("[")
    number = 0
    while text.peek() != "]":
        if number:
            text.expect(",")
        number += 1
        text.peek()
        line = text.line
        yield Record(text.parse_value(), name, f"record {number} (line {line})", number, path)
    text.expect("]")
    if not path:
        _check_end(text, name)


def _read_object(text: JsonText, name: str) -> Iterator[Record]:
    has_records = False
    for key in _read_keys(text, name):
        has_records |= key in _CONTAINERS
        if key not in _CONTAINERS or text.peek() not in ("[", "{"):
            text.parse_value()
        elif text.peek() == "[":
            yield from _read_array(text, name, (key,))
        else:
            for number, inner in enumerate(_read_keys(text, name), 1):
                text.peek()
                line = text.line
                yield Record(text.parse_value(), name, f"record {number} of '{key}' (line {line})", number, (key, inner))
    _check_end(text, name)
    if not has_records:
        raise InputError(f"{name} is one JSON object without {', '.join(sorted(_CONTAINERS))}: not a file of questions in a known format")


def _read_keys(text: JsonText, name: str) -> Iterator[str]:
    """Yield the keys of an object. The caller must parse the value of a key before it requests the next key."""
    text.expect("{")
    is_first = True
    while text.peek() != "}":
        if not is_first:
            text.expect(",")
        is_first = False
        line = text.line
        key = text.parse_value()
        if not isinstance(key, str):
            raise InputError(f"{name}, line {line}: {key!r:.40} where JSON has a name in quotes: fetch the file again, or correct it there")
        text.expect(":")
        yield key
    text.expect("}")


def _check_end(text: JsonText, name: str) -> None:
    if character := text.peek():
        raise InputError(f"{name}, line {text.line}: {character!r} after the end of the JSON: write one array, or one record per line")


def _read_table(lines: Iterable[bytes], name: str) -> Iterator[Record]:
    rows = csv.reader(_decode_lines(lines, name), delimiter="\t")
    header: list[str] | None = None
    number = 1
    try:
        for row in rows:
            if header is None and number == rows.line_num and not _HEADER_COLUMNS.isdisjoint(row):
                header = row
            elif any(map(str.strip, row)):
                yield _table_record(row, header, name, number)
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{name}, line {number}: no row of a table with tabs ({error}): check its quotes") from error


def _table_record(row: list[str], header: list[str] | None, name: str, number: int) -> Record:
    if header is not None and len(row) != len(header):
        raise InputError(f"{name}, line {number}: {len(row)} fields, and the header has {len(header)}: check its tabs and quotes")
    return Record(tuple(row) if header is None else dict(zip(header, row, strict=True)), name, f"line {number}", number)


def _decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 ({error.reason}): convert the file") from error

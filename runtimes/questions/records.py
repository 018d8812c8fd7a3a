"""Files of records: JSON Lines, a JSON array, a JSON object that contains records, or a tab-separated table, detected from the content.

All are read incrementally, plain or compressed, so that memory does not grow with the parts of a file that are not kept.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import InputError
from wikidx.corpora.reading.compression import lines_of, reading

from .json_text import JsonText

_HEAD = 1 << 16  # bytes from which the kind of a file is detected
_HOLDERS = frozenset(
    {"Data", "data", "examples", "train", "dev", "test"}
)  # names under which an object of TriviaQA, SQuAD, BIG-bench, ASQA has its records
_ASKED = frozenset({"question", "Question", "input", "claim"})  # an object with one of these keys is itself a record
_BEGINS_OBJECT = re.compile(r'\{\s*("(Data|Domain|Split|VerifiedEval|Version|data|version|examples|canary|train|dev|test)"\s*:|$)')
_BEGINS_ARRAY = re.compile(r"\[\s*(\{|\]|$)")
_COLUMNS = frozenset({"question", "message", "claim"})  # a first row with one of them is a header


class Record(NamedTuple):
    """A record of a file.

    Attributes:
        value: an object; for a table's row, an object by column name if there is a header, else a tuple.
        file: the file's name.
        place: the line, or the record's number and line.
        number: the line, or in an array the record's position; from 1.
        within: the keys that lead to the record inside an object, outermost first.
    """

    value: Any
    file: str
    place: str
    number: int
    within: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """File and place, for messages."""
        return f"{self.file}, {self.place}"


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, in file order.

    Raises:
        InputError: the file cannot be read or has another content; the line is named.
    """
    with reading(path) as file:
        yield from _records(file, str(path))


def _records(file: IO[bytes], name: str) -> Iterator[Record]:
    blank = list[bytes]()
    first = file.readline(_HEAD)
    while first and not first.strip():
        blank.append(b"\n")
        first = file.readline(_HEAD)
    head = first.decode("utf-8-sig", "replace").strip()
    before = b"".join(blank) + first if blank else first
    if _BEGINS_ARRAY.match(head):
        return _of_array(JsonText(file.read, name, before), name)
    if _holds_records(head):
        return _of_object(JsonText(file.read, name, before), name)
    lines = itertools.chain(blank, lines_of(file, name, first))
    return _of_lines(lines, name) if head.startswith(("{", "[")) or not head else _of_table(lines, name)


def _holds_records(head: str) -> bool:
    """Return whether a file with this beginning is one object that contains records, rather than one record per line."""
    if not head.startswith("{"):
        return False
    with contextlib.suppress(ValueError):
        whole = json_value(head)
        return _ASKED.isdisjoint(whole) and any(isinstance(whole.get(name), list | dict) and whole[name] for name in _HOLDERS)
    return _BEGINS_OBJECT.match(head) is not None


def _of_lines(lines: Iterable[bytes], name: str) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json_value(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except ValueError as error:
            told = f'not JSON in UTF-8 ({error}): each line is {{"id", "question", "golden_answers"}}'
            raise InputError(f"{name}, line {number}: {told}, or a record of another known format") from error
        yield Record(value, name, f"line {number}", number)


def _of_array(text: JsonText, name: str, within: tuple[str, ...] = ()) -> Iterator[Record]:
    text.take("[")
    number = 0
    while text.peek() != "]":
        if number:
            text.take(",")
        number += 1
        text.peek()
        line = text.line
        yield Record(text.value(), name, f"record {number} (line {line})", number, within)
    text.take("]")
    if not within:
        _refuse_more(text, name)


def _of_object(text: JsonText, name: str) -> Iterator[Record]:
    has_records = False
    for key in _keys(text, name):
        has_records |= key in _HOLDERS
        if key not in _HOLDERS or text.peek() not in ("[", "{"):
            text.value()
        elif text.peek() == "[":
            yield from _of_array(text, name, (key,))
        else:
            for number, inner in enumerate(_keys(text, name), 1):
                text.peek()
                line = text.line
                yield Record(text.value(), name, f"record {number} of '{key}' (line {line})", number, (key, inner))
    _refuse_more(text, name)
    if not has_records:
        raise InputError(f"{name} is one JSON object without {', '.join(sorted(_HOLDERS))}: not a file of questions in a known format")


def _keys(text: JsonText, name: str) -> Iterator[str]:
    """Yield the keys of an object; the caller must read each value before it continues."""
    text.take("{")
    is_first = True
    while text.peek() != "}":
        if not is_first:
            text.take(",")
        is_first = False
        line = text.line
        key = text.value()
        if not isinstance(key, str):
            raise InputError(f"{name}, line {line}: {key!r:.40} where JSON has a name in quotes: fetch the file again, or mend it there")
        text.take(":")
        yield key
    text.take("}")


def _refuse_more(text: JsonText, name: str) -> None:
    if more := text.peek():
        raise InputError(f"{name}, line {text.line}: {more!r} behind the end of the JSON: write one array, or one record a line")


def _of_table(lines: Iterable[bytes], name: str) -> Iterator[Record]:
    rows = csv.reader(_decoded(lines, name), delimiter="\t")
    header: list[str] | None = None
    number = 1
    try:
        for row in rows:
            if header is None and number == rows.line_num and not _COLUMNS.isdisjoint(row):
                header = row
            elif any(map(str.strip, row)):
                yield _row(row, header, name, number)
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{name}, line {number}: no row of a table with tabs ({error}): check its quotes") from error


def _row(row: list[str], header: list[str] | None, name: str, number: int) -> Record:
    if header is not None and len(row) != len(header):
        raise InputError(f"{name}, line {number}: {len(row)} fields, and the header has {len(header)}: check its tabs and quotes")
    return Record(tuple(row) if header is None else dict(zip(header, row, strict=True)), name, f"line {number}", number)


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 ({error.reason}): convert the file") from error

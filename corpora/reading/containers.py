"""Containers: the records in the bytes of a file, each a number, which is that of its line from 1, and a mapping of names to values.

A container passes every record that it cannot read to ``on_bad``, which may raise an error. It keeps one record in memory. A line longer
than ``MAX_RECORD_BYTES`` is a bad record.
"""

from __future__ import annotations

import csv
import html
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from wikidx.base.errors import InputError
from wikidx.corpora.passage import BadRecord, OnBad

from .compression import BROKEN_FILE, open_bytes
from .records import explain_json_error, header_columns, json_type

MAX_RECORD_BYTES = 16 << 20

Records = Iterable[tuple[int, Mapping[str, Any]]]
Container = Callable[..., Records]
"""Function of a path and an ``OnBad``, and of the names of columns if it is asked for some, that yields each record's number and values."""


def read_lines(path: Path, on_bad: OnBad) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line with its newline) of a UTF-8 file; a byte order mark is removed."""
    with open_bytes(path) as file:
        for number in itertools.count(1):
            line = _read_line(file, path, number)
            if not line:
                return
            if len(line) > MAX_RECORD_BYTES:
                on_bad(BadRecord(str(path), number, f"the line is longer than {MAX_RECORD_BYTES >> 20} MiB"))
                continue
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                on_bad(BadRecord(str(path), number, f"byte {error.start + 1} of the line is not UTF-8 (0x{line[error.start]:02x})"))
                continue
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def _read_line(file: IO[bytes], path: Path, number: int) -> bytes:
    """Return the next line, truncated to ``MAX_RECORD_BYTES + 1`` bytes.

    Raises:
        InputError: the file is truncated, corrupt or unreadable. Reading cannot continue, because the number of lost records is unknown.
    """
    try:
        line = rest = file.readline(MAX_RECORD_BYTES + 1)
        while len(line) > MAX_RECORD_BYTES and rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_RECORD_BYTES)
    except BROKEN_FILE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"{path}, line {number}: the file cannot be read here ({error.strerror})") from error
        raise InputError(f"{path}, line {number}: the file is cut off or corrupt here ({error}); fetch or compress it again") from error
    return line


def tsv(path: Path, on_bad: OnBad) -> Records:
    """Yield the rows of a table with the columns id, text and title, as DPR's.

    Rows are parsed as in Contriever (src/data.py), by ``csv.reader`` with a tab as the delimiter; but a text that only begins with a quote,
    as in ``1<tab>"Up" is a film<tab>Up``, keeps it. The header defines the column order.
    Without a header (see ``header_columns``), the order is DPR's: id, text, title. Blank lines are skipped.
    """
    order: list[int] = []
    for number, row in read_rows(path, on_bad):
        if not order:
            header = header_columns(row) or []
            is_header = sorted(header) == ["id", "text", "title"]
            order = [(header if is_header else ["id", "text", "title"]).index(name) for name in ("id", "title", "text")]
            if is_header:
                continue
        id_, title, text = order
        yield number, {"id": row[id_], "title": row[title], "text": row[text]}


class _RowLines:
    """Iterator over lines for ``csv.reader``; it remembers the numbered lines of the current row.

    ``reread`` puts back all lines of the current row but the first, to be parsed as further rows.
    """

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._again: deque[tuple[int, str]] = deque()
        self.row: list[tuple[int, str]] = []  # line numbers and lines of the current row
        self.is_cut = False  # whether the file ends inside the current row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines, None)
        if line is None:
            self.is_cut = bool(self.row)
            raise StopIteration
        self.row.append(line)
        return line[1]

    def begin_row(self) -> None:
        self.row, self.is_cut = [], False

    def reread(self) -> None:
        self._again.extendleft(reversed(self.row[1:]))

    def has_gap(self) -> bool:
        return self.row[-1][0] - self.row[0][0] >= len(self.row)


_COLUMNS = ("id", "text", "title")
_QUOTED = re.compile('"(?:[^"]|"")*"')


def read_rows(path: Path, on_bad: OnBad, delimiter: str = "\t", names: Sequence[str] = _COLUMNS) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, columns) of every valid row, which has as many as there are names.

    An unclosed quote can join several lines to one bad row. Only the first of these lines is lost; the others are parsed again. A row that
    spans a line which ``read_lines`` has reported as bad is skipped.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # for all csv readers of this process; the default is 131,072 characters
    lines = _RowLines(read_lines(path, on_bad))
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.begin_row()
        row: list[str] | None = []
        reason = ""
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = "a carriage return outside quotes" if "new-line" in str(error) else f"not a row of a table: {error}"
        if row is None:
            return
        if len(row) != len(names):
            reason = reason or _row_error(row, names)
        if reason or lines.is_cut:
            if lines.is_cut:
                reason = "a quote is opened here and never closed"
            elif len(lines.row) > 1:
                reason += " (a quote that is never closed?)"
            on_bad(BadRecord(str(path), lines.row[0][0], reason))
            lines.reread()
        elif len(row) == len(names) and len(lines.row) == 1:
            yield lines.row[0][0], _restore_quotes(row, lines.row[0][1], delimiter)
        elif len(row) == len(names) and not lines.has_gap():
            yield lines.row[0][0], row


def _restore_quotes(row: list[str], line: str, delimiter: str) -> list[str]:
    """Return the columns of a line, those with quotes that are none of CSV as they stand there."""
    if '"' not in line or len(cells := line.rstrip("\r\n").split(delimiter)) != len(row):
        return row
    return [cell if cell.startswith('"') and not _QUOTED.fullmatch(cell) else value for cell, value in zip(cells, row, strict=True)]


def _row_error(row: list[str], names: Sequence[str]) -> str:
    if not "".join(row).strip():
        return ""
    advice = ": if no line has a title, end each with a tab" if len(row) == 2 and names == _COLUMNS else ""
    return f"{len(row)} columns instead of {len(names)} ({', '.join(names):.80}){advice}"


def json_lines(path: Path, on_bad: OnBad) -> Records:
    """Yield the JSON objects of a file, one a line; blank lines are skipped."""
    for number, line in read_lines(path, on_bad):
        if line.isspace():
            continue
        try:
            record = _json_object(line)
        except (TypeError, ValueError, RecursionError) as error:
            on_bad(BadRecord(str(path), number, explain_json_error(error)))
        else:
            yield number, record


def _json_object(line: str) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except ValueError:  # of Python's JSON: NaN, and half of a surrogate pair
        record = json.loads(line)
    if not isinstance(record, dict):
        raise TypeError(f"{json_type(record)} instead of a JSON object")
    if float in map(type, record.values()) and any(map(_may_be_rounded, record.values())):
        exact: dict[str, Any] = json.loads(line)  # with integers of any size
        return exact
    return record


def _may_be_rounded(value: object) -> bool:
    """Return whether a value may be an integer of more than 64 bits, which orjson reads as a float."""
    return isinstance(value, float) and abs(value) >= 1 << 63


_ESCAPED = re.compile("&(?:amp|lt|gt|quot|#0?39);")


def unescape(text: str) -> str:
    """Unescape ``& < > " '``. WikiExtractor keeps the XML dump's escapes in titles, and escapes texts itself (extract.py)."""
    return _ESCAPED.sub(lambda entity: html.unescape(entity[0]), text)


_DOC = re.compile(r"<doc\s(?P<attributes>.*)>\s*")
_ATTRIBUTE = re.compile(r'(\w+)="(.*?)"(?=\s+\w+="|\s*$)')


def wikiextractor(path: Path, on_bad: OnBad) -> Records:
    """Yield the articles in WikiExtractor's ``<doc id=… title=…>`` blocks; articles without text are skipped.

    WikiExtractor begins each text with the article's title. That line is kept.
    """
    header: tuple[int, dict[str, str]] | None = None
    body: list[str] = []
    is_left_out = False  # whether the current article has been reported as bad
    last = 0
    for number, line in read_lines(path, on_bad):
        if number > last + 1:  # a bad line was skipped: skip its whole article
            header, is_left_out = None, True
        last = number
        if line.startswith("<doc "):
            if header:
                on_bad(BadRecord(str(path), header[0], "this <doc> is not closed before the next one begins"))
            header, body = _parse_header(line, number), []
            is_left_out = not header
            if not header:
                on_bad(BadRecord(str(path), number, "<doc …> without id and title"))
        elif line.startswith("</doc>"):
            yield from _article(header, "".join(body))
            header, is_left_out = None, False
        elif header:
            body.append(line)
        elif not (is_left_out or line.isspace()):
            on_bad(BadRecord(str(path), number, "text outside <doc> … </doc>"))
    if header:
        on_bad(BadRecord(str(path), header[0], "this <doc> is never closed"))


def _parse_header(line: str, number: int) -> tuple[int, dict[str, str]] | None:
    match = _DOC.fullmatch(line)
    attributes = dict(_ATTRIBUTE.findall(match["attributes"])) if match else {}
    return (number, attributes) if {"id", "title"} <= attributes.keys() else None


def _article(header: tuple[int, dict[str, str]] | None, body: str) -> Records:
    if not header:
        return
    number, attributes = header
    title, text = unescape(attributes["title"]), unescape(body)
    if text.strip() not in ("", title):
        yield number, {"id": attributes["id"], "title": title, "text": text}

"""Streaming readers of dump files, one for each format, and detection of the format from the content.

A reader yields every valid record with its file and line, and passes every bad record to ``on_bad``, which may raise an error. A reader
keeps one record in memory. A line longer than ``MAX_RECORD_BYTES`` is a bad record.
"""

from __future__ import annotations

import csv
import html
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import orjson

from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import BadRecord, LocatedPassage, OnBad, Passage

from .compression import BROKEN_FILE, open_bytes
from .records import FIELDS, KEPT_FIELDS, check_object, explain_json_error, header_columns, plain_fields, record_unkept_fields

MAX_RECORD_BYTES = 16 << 20


Reader = Callable[[Path, OnBad], Iterator[LocatedPassage]]


def fail(bad: BadRecord) -> None:
    """Raise ``InputError`` for a bad record; the default ``on_bad``."""
    raise InputError(f"{bad.file}, line {bad.line}: {bad.reason}; correct the file, or skip unusable records with --on-error skip")


def read(path: Path, file_format: str, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
    """Yield the records of a file in a named format.

    Raises:
        InputError: the file cannot be read, or ``on_bad`` raised it.
        UnknownNameError: the format is unknown.
    """
    if file_format not in READERS:
        raise unknown_name_error("format", file_format, READERS)
    yield from READERS[file_format](path, on_bad)


def _read_lines(path: Path, on_bad: OnBad) -> Iterator[tuple[int, str]]:
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


def read_tsv(path: Path, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
    """Yield the rows of a file in DPR's format.

    Rows are parsed as in Contriever (src/data.py), by ``csv.reader`` with a tab as the delimiter; but a text that only begins with a quote,
    as in ``1<tab>"Up" is a film<tab>Up``, keeps it. The header defines the column order.
    Without a header (see ``header_columns``), the order is DPR's: id, text, title. Blank lines are skipped.
    """
    file = str(path)
    order: tuple[int, int, int] | None = None
    for number, row in _read_rows(path, on_bad):
        if order is None:
            order = (0, 2, 1)
            header = header_columns(row)
            if header and sorted(header) == ["id", "text", "title"]:
                order = (header.index("id"), header.index("title"), header.index("text"))
                continue
        yield LocatedPassage(Passage(row[order[0]], row[order[1]], row[order[2]]), file, number)


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


_QUOTED = re.compile('"(?:[^"]|"")*"')


def _read_rows(path: Path, on_bad: OnBad) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, three columns) of every valid row.

    An unclosed quote can join several lines to one bad row. Only the first of these lines is lost; the others are parsed again. A row that
    spans a line which ``_read_lines`` has reported as bad is skipped.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)  # for all csv readers of this process; the default is 131,072 characters
    lines = _RowLines(_read_lines(path, on_bad))
    rows = csv.reader(lines, delimiter="\t")
    while True:
        lines.begin_row()
        row: list[str] | None = []
        reason = ""
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = "a carriage return outside quotes" if "new-line" in str(error) else f"not a tab-separated row: {error}"
        if row is None:
            return
        reason = reason or _row_error(row)
        if reason or lines.is_cut:
            if lines.is_cut:
                reason = "a quote is opened here and never closed"
            elif len(lines.row) > 1:
                reason += " (a quote that is never closed?)"
            on_bad(BadRecord(str(path), lines.row[0][0], reason))
            lines.reread()
        elif len(row) == 3 and not lines.has_gap():
            yield lines.row[0][0], _restore_quotes(row, lines.row[0][1]) if len(lines.row) == 1 else row


def _restore_quotes(row: list[str], line: str) -> list[str]:
    """Return the columns of a line, those with quotes that are none of CSV as they stand there."""
    if '"' not in line or len(cells := line.rstrip("\r\n").split("\t")) != len(row):
        return row
    return [cell if cell.startswith('"') and not _QUOTED.fullmatch(cell) else value for cell, value in zip(cells, row, strict=True)]


def _row_error(row: list[str]) -> str:
    if len(row) == 3 or not "".join(row).strip():
        return ""
    return f"{len(row)} columns instead of 3 (id, text, title){': if no line has a title, end each with a tab' * (len(row) == 2)}"


def _json_reader(fields: Callable[[dict[str, Any]], Passage]) -> Reader:
    """Return a reader of JSON lines; ``fields`` converts a JSON object to a passage."""

    def read_jsonl(path: Path, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
        file = str(path)
        for number, line in _read_lines(path, on_bad):
            if line.isspace():
                continue
            try:
                passage = fields(check_object(orjson.loads(line)))
            except (KeyError, TypeError, ValueError):  # of Python's JSON: NaN, a number of any size, half of a surrogate pair
                try:
                    passage = fields(check_object(json.loads(line)))
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    on_bad(BadRecord(file, number, explain_json_error(error)))
                    continue
            yield LocatedPassage(passage, file, number)

    return read_jsonl


_ESCAPED = re.compile("&(?:amp|lt|gt|quot|#0?39);")


def _unescape(text: str) -> str:
    """Unescape ``& < > " '``. WikiExtractor keeps the XML dump's escapes in titles, and escapes texts itself (extract.py)."""
    return _ESCAPED.sub(lambda entity: html.unescape(entity[0]), text)


def _wikiextractor_fields(record: dict[str, Any]) -> Passage:
    id_, title, text = plain_fields(record)
    return Passage(id_, _unescape(title), _unescape(text))


_DOC = re.compile(r"<doc\s(?P<attributes>.*)>\s*")
_ATTRIBUTE = re.compile(r'(\w+)="(.*?)"(?=\s+\w+="|\s*$)')


def read_wikiextractor(path: Path, on_bad: OnBad = fail) -> Iterator[LocatedPassage]:
    """Yield the articles in WikiExtractor's ``<doc id=… title=…>`` blocks; articles without text are skipped.

    WikiExtractor begins each text with the article's title. That line is kept.
    """
    header: tuple[int, dict[str, str]] | None = None
    body: list[str] = []
    is_left_out = False  # whether the current article has been reported as bad
    last = 0
    for number, line in _read_lines(path, on_bad):
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
            yield from _article(header, "".join(body), path)
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


def _article(header: tuple[int, dict[str, str]] | None, body: str, path: Path) -> Iterator[LocatedPassage]:
    if not header:
        return
    line, attributes = header
    title, text = _unescape(attributes["title"]), _unescape(body)
    if text.strip() not in ("", title):
        yield LocatedPassage(Passage(attributes["id"], title, text), str(path), line)


READERS: dict[str, Reader] = {
    "tsv": read_tsv,
    **{name: _json_reader(fields) for name, fields in FIELDS.items()},
    "wikiextractor": read_wikiextractor,
    "wikiextractor-json": _json_reader(_wikiextractor_fields),
}
ARTICLE_FORMATS = frozenset({"wikiextractor", "wikiextractor-json"})  # formats of whole articles


def unkept_fields(path: Path, file_format: str, n_records: int) -> list[str]:
    """Return the non-empty fields, in the first records of a file, that passages do not keep; unreadable records are ignored."""
    unkept = dict[str, None]()
    for _, line in itertools.islice(_read_lines(path, lambda bad: None), n_records if file_format in KEPT_FIELDS else 0):
        with suppress(ValueError, RecursionError, AttributeError):
            unkept |= dict.fromkeys(record_unkept_fields(json.loads(line), KEPT_FIELDS[file_format]))
    return list(unkept)


def detect_format(path: Path) -> str:
    """Return the name of a file's format, detected from its first non-blank line.

    Raises:
        InputError: the file cannot be read, or its format is none of ``READERS``.
    """
    number, first = next(((number, line.strip()) for number, line in _read_lines(path, _fail_detection) if line.strip()), (0, ""))
    if not first:
        raise InputError(f"{path} holds only blank lines")
    if first.startswith("<doc "):
        return "wikiextractor"
    if first.startswith("{"):
        return _json_format(path, number, first)
    if "\t" in first:
        return "tsv"
    raise InputError(
        f"{path} begins with {first[:40]!r}, which is none of the formats {', '.join(READERS)}; "
        "one record a line is needed, or name the format with --format"
    )


def _fail_detection(bad: BadRecord) -> None:
    raise InputError(f"{bad.file}, line {bad.line}: {bad.reason}; correct the file, or name its --format and add --on-error skip")


def _json_format(path: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{explain_json_error(error)} (one record a line is needed)"
        raise InputError(f"{path}, line {number}: {reason}; correct the file, or name the format with --format") from None
    if {"id", "title", "text"} <= record.keys() and ("revid" in record or "curid=" in str(record.get("url"))):
        return "wikiextractor-json"
    for name, needed in (("beir", {"_id", "text"}), ("contents", {"id", "contents"}), ("jsonl", {"id", "text"})):
        if needed <= record.keys():
            return name
    raise InputError(
        f"{path}, line {number}: has the fields {', '.join(record) or 'none':.200}; "
        "needed are id, title, text (or _id, title, text; or id, contents)"
    )

"""Reading of records from JSON Lines, a JSON array, a JSON object that contains records, CSV, Parquet, Arrow, or TREC's topics.

The form is detected from the content: tables of text have tabs, or a header and commas, semicolons or bars. Plain and compressed files are
read incrementally, so skipped parts take no memory.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import open_decompressed, read_lines
from wikidx.corpora.reading.json_text import JsonText
from wikidx.corpora.reading.readers import fail
from wikidx.corpora.reading.records import header_columns
from wikidx.corpora.reading.tables import arrow_rows, parquet_rows, split_header, table_format

from .topics import read_topics

_DETECTION_BYTES = 1 << 16  # maximum number of bytes of the first line that determine the form
# The records of TriviaQA, SQuAD, BIG-bench, ASQA and QALD are values of these keys; the last is of a request to a search server.
_CONTAINERS = frozenset({"Data", "data", "examples", "train", "dev", "test", "questions", "queries"})
_QUESTION_KEYS = frozenset({"question", "query", "Question", "input", "claim"})  # an object with one of these keys is itself a record
_RECORD_KEYS = {*map(str.casefold, _QUESTION_KEYS), "id", "_id", "text", "title", "contents", "answer", "prompt", "response", "anchor"}
# An object with one of these, in upper or lower case, is a record too, if all of its values are texts.
_BEGINS_OBJECT = re.compile(rf'\{{\s*("({"|".join(_CONTAINERS)}|Domain|Split|VerifiedEval|Version|version|canary)"\s*:|$)')
_BEGINS_ARRAY = re.compile(r'\[\s*(\{|\]|$|"([^"\\]|\\.)*"\s*(,|\]?\s*$))')
_BEGINS_TOPICS = re.compile(r"<([?!]|\w[^<>]*>\s*(<|$))")
_BEGINS_TABLE = re.compile(r"\S+\t|[^\t]+\t\s*\"?\[")  # an id and a text, a header, or a question and a list of answers
_BEGINS_TSV = re.compile(r'[^\s"]+\t(?!\s*"?\[)[^\t]*$')  # an id and a text
_BEGINS_JSON = re.compile(r"\{\s*([\"'}]|\w+\s*:|$)|.*\0")  # not {\em Nile}, a text; a NUL is of UTF-16, and is neither
_IS_STRING = re.compile(r'"([^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})+"')
_HEADER_COLUMNS = frozenset({"question", "query", "message", "claim"})  # a first row with one of these values is a header, too
_CSV_COLUMNS = _HEADER_COLUMNS | {"text", "title", "input", "prompt", "problem"}
_COLUMN_NAME = re.compile(r"[\w.-]*( [\w.-]+){0,2}")  # the first is empty where pandas writes its index


class Record(NamedTuple):
    """A record from a file.

    Attributes:
        value: the JSON value. A table row is a dict by column name if the table has a header, else a tuple. Of a line that is invalid where
            lines may be texts, it is the ``InputError``.
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

    def error(self, message: str) -> InputError:
        """Return (not raise) an error of this record."""
        return InputError(f"{self.location}: {message}")

    def wrong(self, field: str, value: object, needed: str) -> InputError:
        """Return (not raise) the error of a field whose value is not what is needed."""
        return self.error(f"the field '{field}' is {value!r:.40}, {needed}")


def read_records(path: Path, *, has_texts: bool = False) -> Generator[Record]:
    """Yield the records of a file, in file order. Closing the generator closes the file.

    Args:
        path: the file, plain or compressed.
        has_texts: whether a line may be a text alone; its record is ``{"query": text}``.

    Raises:
        InputError: the file cannot be read, or a line or record is invalid.
    """
    if kind := table_format(path):
        rows = parquet_rows(path, fail) if kind == "parquet" else arrow_rows(path, fail)
        yield from (Record(_drop_nulls(row), str(path), f"row {number}", number) for number, row in rows)
        return
    with open_decompressed(path) as file:
        yield from detect_records(file, str(path), has_texts=has_texts)


def _drop_nulls(value: Any) -> Any:  # noqa: ANN401 - as JSON has it
    """Return a value of Arrow's without the nulls of objects, which stand there for fields that a record does not have."""
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_drop_nulls(one) for one in value] if isinstance(value, list) else value


def detect_records(file: IO[bytes], name: str, read: bytes = b"", *, has_texts: bool = False) -> Iterator[Record]:
    """Return the records of an open file as ``read_records`` does; ``read`` is the part of the first line that the caller has read."""
    n_blank = 0
    first = read if read.endswith(b"\n") else read + file.readline(_DETECTION_BYTES)
    while first and not first.removeprefix(codecs.BOM_UTF8).strip():
        n_blank += first.endswith(b"\n")
        first = file.readline(_DETECTION_BYTES)
    start = first.decode("utf-8-sig", "replace").strip()
    if _BEGINS_ARRAY.match(start):
        return _read_array(JsonText(file.read, name, first, 1 + n_blank), name)
    if _holds_records(start):
        return _read_object(JsonText(file.read, name, first, 1 + n_blank), name)
    lines = itertools.chain(itertools.repeat(b"\n", n_blank), read_lines(file, name, first))
    if _BEGINS_TOPICS.match(start):
        topics = enumerate(read_topics(_decode_lines(lines, name)), 1)
        return (Record(topic, name, f"topic {number} (line {line})", number) for number, (line, topic) in topics)
    delimiter, cells = split_header(start)
    if delimiter != "\t" and _is_csv_header([cell.strip('"') for cell in cells]):
        return _read_table(lines, name, csv.QUOTE_MINIMAL, delimiter)
    if start.startswith(("{", "[")) or not start or (has_texts and not _BEGINS_TABLE.match(start)):
        return _read_lines(lines, name, has_texts=has_texts)
    return _read_table(lines, name, csv.QUOTE_NONE if _BEGINS_TSV.match(start) and not _header(start.split("\t")) else csv.QUOTE_MINIMAL)


def _is_csv_header(cells: list[str]) -> bool:
    """Return whether the cells of a first line are names, one of them known to be that of a question."""
    are_names = 1 < len(cells) == len({*cells}) and all(map(_COLUMN_NAME.fullmatch, cells))
    return are_names and not _CSV_COLUMNS.isdisjoint(map(str.casefold, cells))


def _header(row: list[str]) -> list[str] | None:
    """Return the names of the columns if a first row is a header. A title without another text is what is searched for."""
    columns = header_columns(row)
    if columns and {"query", "text"}.isdisjoint(columns):
        return ["query" if column == "title" else column for column in columns]
    return columns or (None if _HEADER_COLUMNS.isdisjoint(row) else row)


def _holds_records(start: str) -> bool:
    """Return whether a file that begins with ``start`` is one JSON object that contains records."""
    if not start.startswith("{"):
        return False
    with contextlib.suppress(ValueError):
        whole = parse_json(start)
        has_records = any(isinstance(whole.get(name), list | dict) and whole[name] for name in _CONTAINERS)
        return (has_records and _QUESTION_KEYS.isdisjoint(whole)) or _has_text_of_each_id(whole)
    with contextlib.suppress(ValueError):  # the beginning of a long line, cut behind a text
        if _has_text_of_each_id(parse_json(start.rpartition('",')[0] + '"}')):
            return True
    return _BEGINS_OBJECT.match(start) is not None


def _has_text_of_each_id(whole: dict[str, Any]) -> bool:
    return bool(whole) and _RECORD_KEYS.isdisjoint(map(str.casefold, whole)) and all(isinstance(value, str) for value in whole.values())


def _read_lines(lines: Iterable[bytes], name: str, *, has_texts: bool) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = line.decode().strip()
            is_json = not has_texts or _BEGINS_JSON.match(text) or _IS_STRING.fullmatch(text)
            value = parse_json(text) if is_json else text
            value = {"query": value} if has_texts and isinstance(value, str) else value
        except ValueError as error:
            known = 'each line is {"id", "question", "golden_answers"}, or a record of another known format'
            value = InputError(f"{name}, line {number}: {'neither text nor' if has_texts else 'not'} JSON in UTF-8 ({error}): {known}")
            if not has_texts:
                raise value from error
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
        value = text.parse_value()
        yield Record({"query": value} if isinstance(value, str) else value, name, f"record {number} (line {line})", number, path)
    text.expect("]")
    if not path:
        text.check_end()


def _read_object(text: JsonText, name: str) -> Iterator[Record]:
    has_records, others = False, dict[str, Any]()
    for key in text.keys():
        has_records |= key in _CONTAINERS
        if key not in _CONTAINERS or text.peek() not in ("[", "{"):
            others[key] = text.parse_value()
        elif text.peek() == "[":
            yield from _read_array(text, name, (key,))
        else:
            for number, inner in enumerate(text.keys(), 1):
                text.peek()
                line, value = text.line, text.parse_value()
                value = {"id": inner, "query": value} if isinstance(value, str) else value
                yield Record(value, name, f"record {number} of '{key}' (line {line})", number, (key, inner))
    if others and text.peek():
        raise InputError(f"{name}, line 1: {', '.join(others):.200} are no fields of a question: 'question' or 'query' is one")
    text.check_end()
    if _has_text_of_each_id(others) and not has_records:
        for number, (key, value) in enumerate(others.items(), 1):
            yield Record({"id": key, "question": value}, name, f"record {number} ('{key:.40}')", number)
    elif not has_records:
        raise InputError(f"{name} is one JSON object without {', '.join(sorted(_CONTAINERS))}: not a file of questions in a known format")


def _read_table(lines: Iterable[bytes], name: str, quoting: Literal[0, 3], delimiter: str = "\t") -> Iterator[Record]:
    is_csv = delimiter != "\t"
    rows = csv.reader(_decode_lines(lines, name), delimiter=delimiter, quoting=quoting, skipinitialspace=is_csv, strict=is_csv)
    header: list[str] | None = None
    number, has_begun = 1, False
    try:
        for row in rows:
            if any(map(str.strip, row)):
                if has_begun or not (header := row if is_csv else _header(row)):
                    yield _table_record(row, header, name, number)
                has_begun = True
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{name}, line {number}: no row of a table ({error}): check its quotes") from error


def _table_record(row: list[str], header: list[str] | None, name: str, number: int) -> Record:
    if header is not None and len(row) != len(header):
        raise InputError(f"{name}, line {number}: {len(row)} fields, and the header has {len(header)}: check its delimiters and quotes")
    return Record(tuple(row) if header is None else dict(zip(header, row, strict=True)), name, f"line {number}", number)


def _decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 ({error.reason}): convert the file") from error

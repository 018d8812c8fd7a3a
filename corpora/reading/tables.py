"""Containers of tables and of JSON that is not one record a line: CSV, Parquet, Arrow, arrays and objects.

They keep one record in memory, or a batch of rows. Parquet and Arrow read only the columns that a passage needs.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.errors import InputError
from wikidx.corpora.passage import BadRecord, OnBad

from .compression import BROKEN_FILE, open_bytes, open_decompressed
from .containers import Records, read_lines, read_rows
from .fields import has_text
from .json_text import JsonText
from .records import json_type

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITERS = ",;\t|"

_ARROW_FILE = b"ARROW1\0\0"
_FORMATS = {b"PAR1": "parquet", _ARROW_FILE: "arrow", b"\xff\xff\xff\xff": "arrow"}  # by first bytes; the last: a stream
_NAME = re.compile(rf"[^{DELIMITERS}{{}}\"<>]{{1,80}}")
_BATCH_ROWS = 1024
_HEAD_BYTES = 4096
_LINE_CHARACTERS = 1 << 16  # of a header; csv refuses longer cells than twice that
_OF_RECORDS = frozenset({"data", "documents", "docs", "passages", "corpus", "records", "rows", "items", "collection", "train"})
_LONG = re.compile(rf'\s*(\[|\{{\s*"({"|".join(sorted(_OF_RECORDS))})"\s*:\s*\[)', re.IGNORECASE)


def table_format(path: Path) -> str | None:
    """Return the name of a binary table's format by the file's first bytes; None if it is no such table, or cannot be read."""
    if not path.is_file():  # a pipe, which is read once
        return None
    with contextlib.suppress(OSError), path.open("rb") as file:
        start = file.read(len(_ARROW_FILE))
        return next((name for magic, name in _FORMATS.items() if start.startswith(magic)), None)
    return None


def long_json(path: Path) -> str | None:
    """Return "json" if a file begins with an array, or an object that has records under a known name, also on a line of any length."""
    with open_bytes(path) as file, contextlib.suppress(*BROKEN_FILE):
        return "json" if _LONG.match(file.read(_HEAD_BYTES).decode("utf-8-sig", "ignore")) else None
    return None


def holds_records(record: Mapping[str, Any]) -> bool:
    """Return whether an object holds records: in an array under a known name, or by id, as all of its values are objects."""
    is_array = any(isinstance(value, list) and name.lower() in _OF_RECORDS for name, value in record.items())
    return is_array or (bool(record) and all(isinstance(value, dict) for value in record.values()))


def split_header(line: str) -> tuple[str, list[str]]:
    """Return the delimiter that divides a table's first line into the most cells, and the cells."""
    line = line[:_LINE_CHARACTERS].strip("\r\n").replace("\r", " ")
    cells = {delimiter: next(csv.reader([line], delimiter=delimiter), []) for delimiter in DELIMITERS}
    delimiter = max(cells, key=lambda each: len(cells[each]))
    return delimiter, [cell.strip() for cell in cells[delimiter]]


def is_header(line: str) -> bool:
    """Return whether a line is the header of a table: several distinct names, one of which is known to be that of a text."""
    _, names = split_header(line)
    return 1 < len(names) == len({*names}) and all(map(_NAME.fullmatch, names)) and has_text(names)


def csv_rows(path: Path, on_bad: OnBad) -> Records:
    """Yield the rows of a table with a header, divided by commas, semicolons, tabs or bars, as strings by the header's names."""
    delimiter, names = next((split_header(line) for _, line in read_lines(path, on_bad) if line.strip()), (",", []))
    if len({*names}) < len(names) or not all(names):
        raise InputError(f"{path}: the header {','.join(names):.80} has a column twice, or without a name: correct it")
    rows = read_rows(path, on_bad, delimiter, names)
    next(rows, None)
    return ((number, dict(zip(names, row, strict=True))) for number, row in rows)


def two_columns(path: Path, on_bad: OnBad) -> Records:
    """Yield the lines of MS MARCO's ``collection.tsv``: an id, a tab, and a text, in which quotes mean nothing."""
    for number, line in read_lines(path, on_bad):
        id_, tab, text = line.rstrip("\r\n").partition("\t")
        if line.isspace():
            continue
        if tab and "\t" not in text:
            yield number, {"id": id_, "text": text}
        else:
            on_bad(BadRecord(str(path), number, f"{line.count(chr(9)) + 1} columns instead of 2 (id, text)"))


def json_values(path: Path, on_bad: OnBad) -> Records:
    """Yield the records of a JSON array; of an object that has them under a name such as "data", or is a record; or of several of these.

    In an object of id → record, or id → text, the id becomes the record's own. Records are numbered from 1.
    """
    number = 0
    with open_decompressed(path) as file:
        text = JsonText(file.read, str(path))
        while (start := text.peek()) in ("{", "["):
            for value in _array(text) if start == "[" else _object(text):
                number += 1
                if isinstance(value, Mapping):
                    yield number, value
                else:
                    on_bad(BadRecord(str(path), number, f"record {number} is {json_type(value)}, not an object"))
        text.check_end()


def _array(text: JsonText) -> Iterator[Any]:
    text.expect("[")
    has_begun = False
    while text.peek() != "]":
        if has_begun:
            text.expect(",")
        has_begun = True
        yield text.parse_value()
    text.expect("]")


def _object(text: JsonText) -> Iterator[Any]:
    record, n_yielded = dict[str, Any](), 0
    for key in text.keys():
        start = text.peek()
        if start == "[" and key.lower() in _OF_RECORDS:
            n_yielded += 1
            yield from _array(text)
        elif start == "{" and not record:
            n_yielded += 1
            yield {"id": key, **text.parse_value()}
        else:
            record[key] = text.parse_value()
    if n_yielded or not record:
        return
    if has_text(record) or not all(isinstance(value, str) for value in record.values()):
        yield record
    else:
        yield from ({"id": key, "text": value} for key, value in record.items())


def parquet_columns(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns; raises ``InputError`` if it cannot be read."""
    import pyarrow.parquet as pq

    with _readable(path, "Parquet"), pq.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def parquet_rows(path: Path, on_bad: OnBad, columns: Collection[str] | None = None) -> Records:
    """Yield the rows of a Parquet file, from 1; of the named columns, or of all."""
    import pyarrow.parquet as pq

    with _readable(path, "Parquet"), pq.ParquetFile(path) as file:
        names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        yield from _number(file.iter_batches(_BATCH_ROWS, columns=names))


def table_bytes(path: Path) -> int:
    """Return the size of a file, decompressed if it is Parquet."""
    import pyarrow.parquet as pq

    if table_format(path) != "parquet":
        return path.stat().st_size
    with _readable(path, "Parquet"), pq.ParquetFile(path) as file:
        return sum(file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups))


def arrow_columns(path: Path) -> list[str]:
    """Return the names of the columns of an Arrow or Feather file; raises ``InputError`` if it cannot be read."""
    with _readable(path, "Arrow or Feather"), _open_arrow(path, None) as file:
        return list(file.schema.names)


def arrow_rows(path: Path, on_bad: OnBad, columns: Collection[str] | None = None) -> Records:
    """Yield the rows of an Arrow or Feather file, or of a file with an Arrow stream, from 1; of the named columns, or of all."""
    with _readable(path, "Arrow or Feather"), _open_arrow(path, columns) as file:
        is_stream = not hasattr(file, "num_record_batches")
        yield from _number(file if is_stream else map(file.get_batch, range(file.num_record_batches)))


def _open_arrow(path: Path, columns: Collection[str] | None) -> Any:  # noqa: ANN401 - two classes of pyarrow
    import pyarrow as pa

    content = pa.memory_map(str(path))
    open_ = pa.ipc.open_file if content.read(len(_ARROW_FILE)) == _ARROW_FILE else pa.ipc.open_stream
    content.seek(0)
    if columns is None:
        return open_(content)
    places = [place for place, name in enumerate(arrow_columns(path)) if name in columns]
    return open_(content, options=pa.ipc.IpcReadOptions(included_fields=places))


def table_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the rows of Arrow's batches, of which 1,024 at a time are Python values."""
    for batch in batches:
        for start in range(0, len(batch), _BATCH_ROWS):
            yield from batch.slice(start, _BATCH_ROWS).to_pylist()


def table_records(table: Any) -> Any:  # noqa: ANN401 - any iterable, or a table of pandas, polars or Arrow
    """Return the rows of a data frame or of a table of Arrow as records; anything else as it is."""
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # of pandas, also without pyarrow
        return table.to_dict(orient="records")
    if not hasattr(table, "__arrow_c_stream__"):
        return table
    import pyarrow as pa

    return table_rows(pa.RecordBatchReader.from_stream(table))


def _number(batches: Any) -> Records:  # noqa: ANN401 - an iterable of pyarrow
    return enumerate(table_rows(batches), 1)


@contextlib.contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError.of(error, path, f"{path} is no {kind} file that can be read: {str(error).splitlines()[0]}") from error

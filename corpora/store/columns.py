"""Columns beside the passages: the span of each row, in a file of Arrow, and the first row of its document.

A store has them if one of its passages has a span. They are written again from the first row by a resumed writer, and have a fixed number
of rows in a batch, so that their bytes depend on the passages alone. Batches are verified when they are first read.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.durable import write_durably
from wikidx.corpora.passage import Rows, Span

from .layout import COLUMN_BATCHES, COLUMNS, DOCUMENTS

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 16_384


class SpanWriter:
    """Writer of the columns of a store in a folder; until a passage has a span, it writes nothing. ``finish`` completes the files."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._out = folder, ExitStack()
        for name in (COLUMNS, COLUMN_BATCHES, DOCUMENTS):
            (folder / name).unlink(missing_ok=True)
        self._columns: _Columns | None = None
        self._n_rows = self._first = 0  # ``_first`` is the first row of the document at the end
        self._document: str | None = None

    def add(self, spans: Sequence[Span | None]) -> None:
        """Take the spans of the next rows."""
        if self._columns is None and any(spans):
            self._columns = _Columns(self._out.enter_context((self._folder / COLUMNS).open("wb")))
            self._firsts = self._out.enter_context((self._folder / DOCUMENTS).open("wb"))
            spans, self._n_rows = [*[None] * self._n_rows, *spans], 0
        if self._columns is not None:
            firsts = []
            for row, span in enumerate(spans, self._n_rows):
                if span is None or span.document != self._document:
                    self._document, self._first = (None if span is None else span.document), row
                firsts.append(self._first)
            self._firsts.write(np.array(firsts, dtype="<u4").tobytes())
            self._columns.add(spans)
        self._n_rows += len(spans)

    def finish(self) -> None:
        """Write what is left, and where the batches begin; raises ``OSError``."""
        if self._columns is not None:
            write_durably(self._folder / COLUMN_BATCHES, np.array(self._columns.finish(), dtype="<i8").tobytes())
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._out.close()


class _Columns:
    """Writer of spans to a file of Arrow."""

    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow as pa

        types = {"document": pa.string(), "start": pa.int64(), "end": pa.int64(), "page": pa.int64(), "heading": pa.string()}
        self._schema = pa.schema([(name, types[name]) for name in Span._fields])
        self._file, self._writer = file, pa.ipc.new_file(file, self._schema)
        self._pending, self._places = list[Span | None](), list[int]()

    def add(self, spans: Sequence[Span | None]) -> None:
        self._pending += spans
        while len(self._pending) >= BATCH_ROWS:
            self._write()

    def finish(self) -> list[int]:
        """Complete the file; return where each batch begins, and the footer."""
        if self._pending:
            self._write()
        self._places.append(self._file.tell())
        self._writer.close()
        return self._places

    def _write(self) -> None:
        """Write a batch of the first pending rows."""
        import pyarrow as pa

        rows, self._pending = self._pending[:BATCH_ROWS], self._pending[BATCH_ROWS:]
        columns = zip(*[span or (None,) * len(Span._fields) for span in rows], strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._places.append(self._file.tell())
        self._writer.write_batch(pa.record_batch(arrays, self._schema))


class Spans:
    """The columns of a finished store, mapped.

    Raises:
        ArtifactCorrupt: a file is corrupt.
    """

    def __init__(self, files: CheckedFiles) -> None:
        import pyarrow as pa

        files[COLUMN_BATCHES].check_all()
        self._file, self._batches = files[COLUMNS], files[COLUMN_BATCHES].content.view("<i8")
        self._check(len(self._batches) - 1)
        self._reader = pa.ipc.open_file(pa.py_buffer(self._file.content))
        self.batch = functools.cache(self._read)
        self._batch_rows = self.batch(0).num_rows

    def _check(self, number: int) -> None:
        """Verify a batch, or the footer after the last one."""
        ends = [*self._batches[1:], len(self._file.content)]
        self._file.check(self._batches[number : number + 1], np.array(ends[number : number + 1]))

    def _read(self, number: int) -> pa.RecordBatch:
        self._check(number)
        return self._reader.get_batch(number)

    def of_rows(self, rows: Rows) -> list[Span | None]:
        """Return the span of each row, None for one without."""
        found: list[Span | None] = [None] * len(rows)
        numbers, within = np.divmod(rows, self._batch_rows)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            columns = [column.to_pylist() for column in self.batch(number).take(within[places]).columns]
            for place, fields in zip(places.tolist(), zip(*columns, strict=True), strict=True):
                found[place] = Span(*fields) if fields[0] is not None else None
        return found

    def find_document(self, name: str) -> int | None:
        """Return the first row of a document, looked for in all rows; None if there is no such document."""
        import pyarrow.compute as pc

        for number in range(len(self._batches) - 1):
            if (row := pc.index(self.batch(number).column(0), name).as_py()) >= 0:
                return int(number * self._batch_rows + row)
        return None


def document_rows(firsts: NDArray[np.uint32], row: int) -> range:
    """Return the rows of the document of a row, from the first row of each row's document, which ascends."""
    first = int(firsts[row])
    return range(first, int(np.searchsorted(firsts, first, side="right")))

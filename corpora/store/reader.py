"""Reader of a finished store by row, id or title; safe for processes, threads and forks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import InputError
from wikidx.corpora.passage import NO_ROW, Passage, Rows, Span

from .batches import Batches
from .columns import Spans, document_rows
from .frames import Vocabulary
from .layout import COLUMNS, DATABASE, DOCUMENTS, IDS, PLACES, REPEATED, TEXT_KEYS, TITLES, VOCABULARY, key_of
from .names import find_candidates

TextKeys = NDArray[np.uint64]


_READ_ROWS = 1024
_READ_BYTES = 4 << 20  # size limit of a batch, which only whole articles reach


class PassageStore:
    """A finished store, memory-mapped; it stays as it is when it is replaced on disk.

    Attributes:
        folder: folder of the store's files.
        fingerprint: sha256 of all passages in row order; see ``layout.pack``.

    Raises:
        ArtifactCorrupt: a file is missing, truncated or corrupt.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.fingerprint = manifest.fingerprint
        self._n_passages = manifest.count("rows")
        self._files = CheckedFiles(folder, manifest)
        self._spans: Spans | None = None
        places = self._read(PLACES).view("<i8").reshape(-1, 3)
        self._passages = self._files[DATABASE]
        self._batches = Batches(self._passages.content, places, Vocabulary(self._read(VOCABULARY).tobytes()), self._passages.check)

    def __len__(self) -> int:
        return self._n_passages

    @property
    def left_out(self) -> str:
        """Key of the records that were left out because they repeat an id; "" if there are none."""
        return key_of(self._read(REPEATED).tobytes()) if REPEATED in self._files else ""

    @property
    def text_key(self) -> TextKeys:
        """Text key of each row (see ``corpora.passage.text_key``), uint64 of shape (n,).

        Raises:
            ArtifactCorrupt: the array is corrupt.
        """
        return self._array(TEXT_KEYS)

    @property
    def has_spans(self) -> bool:
        """True if the passages know their places in documents."""
        return COLUMNS in self._files

    def span(self, row: int) -> Span | None:
        """Return the place of a row's passage in its document, None without one; raises as ``get_many`` does."""
        return self.spans([row])[0]

    def spans(self, rows: Sequence[int] | Rows) -> list[Span | None]:
        """Return the place of each row's passage in its document, None for one without; raises as ``get_many`` does."""
        array = self._check_rows(rows)
        return self._open_spans().of_rows(array) if self.has_spans else [None] * len(array)

    def _open_spans(self) -> Spans:
        if self._spans is None:  # without a lock, which a fork may find taken: threads may open them twice
            self._spans = Spans(self._files)
        return self._spans

    @property
    def first_rows(self) -> NDArray[np.uint32]:
        """First row of the document of each row, or the row itself if it has none, uint32 of shape (n,), ascending.

        Raises:
            InputError: the passages do not know their documents.
            ArtifactCorrupt: the array is corrupt.
        """
        if not self.has_spans:
            name = self.folder.parent.name
            raise InputError(f"the passages of '{name}' do not say which document they are of: build it from documents with --split RULE")
        firsts: NDArray[np.uint32] = self._files[DOCUMENTS].array("<u4", (self._n_passages,))[:]
        return firsts

    def document_rows(self, row: int) -> range:
        """Return the rows of the document of a row, which follow one another; raises as ``first_rows`` does."""
        return document_rows(self.first_rows, row)

    def find_document(self, name: str) -> range | None:
        """Return the rows of a document, None if there is no such document; raises as ``first_rows`` does."""
        firsts = self.first_rows
        for row in self.rows_of([f"{name}#0", name]).tolist():  # as splitting names them; what else has a span is looked for
            if row >= 0 and (span := self.span(row)) is not None and span.document == name:
                return document_rows(firsts, row)
        first = self._open_spans().find_document(name)
        return None if first is None else document_rows(firsts, first)

    def get_many(self, rows: Sequence[int] | Rows) -> list[Passage]:
        """Return the passages of the rows, in the order of ``rows``.

        Raises:
            TypeError: the rows are not integers.
            ValueError: a row is negative, or beyond the last row.
            ArtifactCorrupt: a passage is corrupt.
        """
        return self._batches.passages(self._check_rows(rows))

    def _check_rows(self, rows: Sequence[int] | Rows) -> Rows:
        array = np.asarray(rows)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"rows are {array.dtype}, not integers")
        if array.size and not (array.min() >= 0 and array.max() < self._n_passages):
            raise ValueError(f"rows from {array.min()} to {array.max()} are requested, the store has 0 to {self._n_passages - 1}")
        return array.astype(np.int64)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Passage]:
        """Yield the passages from row ``start`` to before row ``stop`` (None: the end) in bounded memory; raises as ``get_many`` does."""
        return itertools.chain.from_iterable(self.read_batches(start, self._n_passages if stop is None else stop))

    def read_batches(self, start: int, stop: int) -> Iterator[list[Passage]]:
        """Yield the passages from row ``start`` to before row ``stop`` in lists of limited size; raises as ``get_many`` does."""
        end = min(stop, self._n_passages)
        for first in range(start, end, _READ_ROWS):
            (start, _), (_, stop) = self._batches.locate(np.array([first, min(first + 2 * _READ_ROWS, end) - 1])).tolist()
            self._passages.read_ahead(start, stop)
            rows = np.arange(first, min(first + _READ_ROWS, end))
            ends = np.cumsum(self._batches.sizes(rows))
            for chunk in np.split(rows, np.flatnonzero(np.diff(ends // _READ_BYTES)) + 1):
                yield self.get_many(chunk)

    def rows_of(self, ids: Sequence[str]) -> Rows:
        """Return the row of each id, int64 of shape (len(ids),); -1 for an unknown id. Raises as ``get_many`` does."""
        rows = np.full(len(ids), NO_ROW, dtype=np.int64)
        for number, row, passage in self._find_candidates(IDS, ids):
            if passage.id == ids[number]:
                rows[number] = row
        return rows

    def rows_with_title(self, title: str) -> Rows:
        """Return the rows of all passages with exactly this title, int64, ascending; raises as ``get_many`` does."""
        return np.array([row for _, row, passage in self._find_candidates(TITLES, [title]) if passage.title == title], dtype=np.int64)

    def _find_candidates(self, array: str, names: Sequence[str]) -> Iterator[tuple[int, int, Passage]]:
        """Yield (position in ``names``, row, passage) of all passages that may have one of the names."""
        numbers, rows = find_candidates(self._array(array), [name.encode(errors="surrogatepass") for name in names])
        for first in range(0, len(rows), _READ_ROWS):
            chunk = slice(first, first + _READ_ROWS)
            yield from zip(numbers[chunk].tolist(), rows[chunk].tolist(), self.get_many(rows[chunk]), strict=True)

    def _array(self, name: str) -> TextKeys:
        """Return an array with one uint64 per row, verified."""
        return self._files[name].array("<u8", (self._n_passages,))[:]

    def _read(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a file, verified."""
        self._files[name].check_all()
        return self._files[name].content

"""The vectors of a corpus during a build: one preallocated ``.npy`` file for all rows, and a journal of the finished ranges.

Components are float32 or float16. Imported vectors may lack some rows, which ``missing.npy`` then lists (int64, ascending). The vectors of
these rows are zeros, and a search skips them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.durable import atomic_write
from wikidx.base.errors import IdxError, InputError
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Stored, StoredVectors, Vectors

Codes = Literal["int8", "uint8"]  # components of quantized vectors

KIND = "vectors"
FORMAT_VERSION = 2
VECTORS = "vectors.npy"
MISSING = "missing.npy"
# Rows written as a unit: after an interruption, a range is finished or lost. With batches as large as a GPU's, which encodes 4,096 rows in
# seconds, ranges of 1,024 rows would have 9 % more padding; with those of a CPU, they have 0.4 % more.
RANGE_ROWS, GPU_RANGE_ROWS = 1_024, 4_096
# Vectors that were scaled to length 1 in bfloat16, which has 8 bits, are off by less than this, those in float16 by less than 0.002. The
# dtype in a file does not tell which: many vectors were computed in 16 bits and stored in 32.
UNIT_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The file of vectors in a folder, complete or not. Picklable; several processes may write at the same time.

    Attributes:
        folder: folder of ``vectors.npy`` and, until the artifact is finished, of the journal.
        n_rows: rows of the corpus.
        stored: dtype of the components; an index's quantized vectors are written as an encoder's are.
        range_rows: rows of a range, which is written as a unit.
        is_unit: whether the vectors must have length 1, as those of an encoder that normalizes.
    """

    folder: Path
    n_rows: int
    stored: Stored | Codes
    range_rows: int = RANGE_ROWS
    is_unit: bool = False

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.folder / VECTORS

    def ranges(self) -> list[range]:
        """Return all ranges of rows."""
        return [range(first, min(first + self.range_rows, self.n_rows)) for first in range(0, self.n_rows, self.range_rows)]

    def unfinished_ranges(self) -> list[range]:
        """Return the ranges that are not completely on disk."""
        is_finished = finished_rows(self.folder, self.n_rows) & bool(self.dim())
        return [rows for rows in self.ranges() if not is_finished[rows.start : rows.stop].all()]

    def write(self, rows: range, vectors: Vectors | NDArray[Any]) -> None:
        """Write the vectors of consecutive rows, shape (len(rows), dim), and record the rows as finished.

        Raises:
            IdxError: a component is not finite, or too large for float16, or the length is not 1; the message names the row.
            OSError: a disk error.
        """
        content, problem = _convert(vectors, self.stored, rows, is_unit=self.is_unit)
        if problem:
            raise IdxError(f"{problem}; the finished vectors are kept")
        with self._locked_journal(vectors.shape[1]) as journal:
            with self.path.open("r+b") as file:
                file.seek(file.seek(0, os.SEEK_END) - (self.n_rows - rows.start) * content[:1].nbytes)
                file.write(content.data)
                file.flush()
                os.fsync(file.fileno())
            line = f"{rows.start} {rows.stop}"
            journal.write(f"\n{line} {_checksum(line)}\n".encode())  # the first line break ends a line that a crash has cut off
            journal.flush()
            os.fsync(journal.fileno())

    def map_writable(self, dim: int) -> NDArray[Any]:
        """Return all vectors as a writable map for ``write_rows``. Unwritten vectors are zero. No range is recorded as finished."""
        with self._locked_journal(dim):
            array: NDArray[Any] = np.load(self.path, mmap_mode="r+")
            return array

    @contextlib.contextmanager
    def _locked_journal(self, dim: int) -> Iterator[IO[bytes]]:
        """Lock and open the journal. If the file has another dimension or is missing, empty the journal and create the file."""
        path = self.folder / INTERMEDIATE / _JOURNAL
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            if self.dim() != dim:
                journal.truncate(0)
                self._allocate(dim)
            yield journal

    def dim(self) -> int:
        """Return the dimension of the file's vectors; 0 if the file is missing or truncated, or has another dtype or number of rows."""
        try:
            array = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return 0
        return int(array.shape[1]) if array.ndim == 2 and array.dtype == self.stored and len(array) == self.n_rows else 0

    def _allocate(self, dim: int) -> None:
        """Create the file with zeros, and allocate its disk space. On a full disk this raises; a later write to the map would crash."""
        shape, dtype = (self.n_rows, dim), np.dtype(self.stored)
        with atomic_write(self.path) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
            n_bytes = file.tell() + self.n_rows * dim * dtype.itemsize
            file.truncate(n_bytes)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)


_JOURNAL = "finished"


def write_rows(array: NDArray[Any], rows: Rows, vectors: StoredVectors, *, is_unit: bool = False) -> None:
    """Write the vectors of given rows, shape (len(rows), dim), into an array from ``VectorFile.map_writable``.

    Raises:
        InputError: a component is not finite, or too large for float16, or a length is not 1 though it must be; the message names the row.
    """
    content, problem = _convert(vectors, array.dtype, rows, is_unit=is_unit)
    if problem:
        raise InputError(problem)
    array[rows] = content


def finished_ranges(folder: Path) -> list[range]:
    """Return the finished ranges of rows in a folder's journal, in the order of writing."""
    try:
        lines = (folder / INTERMEDIATE / _JOURNAL).read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return []
    fields = (line.rpartition(" ") for line in lines)
    bounds = (rows.split() for rows, _, checksum in fields if rows and checksum == _checksum(rows))
    return [range(int(start), int(stop)) for start, stop in bounds]


def finished_rows(folder: Path, n_rows: int) -> NDArray[np.bool_]:
    """Return for each row whether a range in a folder's journal has it, shape (n_rows,)."""
    is_finished = np.zeros(n_rows, dtype=np.bool_)
    for rows in finished_ranges(folder):
        is_finished[rows.start : rows.stop] = True
    return is_finished


def _checksum(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def lengths(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return the Euclidean length of each vector, shape (n,)."""
    components = vectors.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):  # infinity
        squares: NDArray[np.float32] = np.vecdot(components, components)
    return np.sqrt(squares)


def _convert(vectors: NDArray[Any], stored: str | np.dtype[Any], rows: Rows | range, *, is_unit: bool) -> tuple[StoredVectors, str | None]:
    """Return the vectors in the stored dtype, and a message for the first vector that cannot be stored, or None."""
    with np.errstate(over="ignore"):
        content: StoredVectors = np.ascontiguousarray(vectors, dtype=stored)
    is_finite = np.isfinite(content).all(axis=1)
    found = lengths(vectors) if is_unit else np.ones(len(content), dtype=np.float32)
    is_good = is_finite & (np.abs(found - 1) <= UNIT_TOLERANCE)
    if is_good.all():
        return content, None
    number = int(np.argmin(is_good))
    problem = f"has length {found[number]:.4g}, the encoder's have length 1: correct it, or scale all with --normalize"
    if not np.isfinite(content[number]).all():
        is_too_large = np.isfinite(vectors[number]).all()
        problem = f"has a component too large for {content.dtype}: use --dtype float32" if is_too_large else "is not finite"
    return content, f"the vector of row {rows[number]} {problem}"

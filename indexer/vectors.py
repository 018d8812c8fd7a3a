"""The vectors of a corpus on disk: shards of equally many consecutive rows, each a ``.npy`` file that is there whole or not at all.

Components are float32 or float16. Imported vectors may lack some rows: ``missing.npy`` then lists these (int64, ascending); their vectors
are zeros, and a search passes over them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

import numpy as np

from corpora.artifacts import Manifest
from corpora.durable import replacing, sync
from corpora.errors import ArtifactDamaged, IdxError, InputError
from corpora.store import Rows

from .base import Stored, StoredVectors, Vectors
from .memory_map import map_checked, write_array
from .page_checks import CheckedFile

KIND = "vectors"
FORMAT_VERSION = 1
SHARD_ROWS = 16_384
MISSING = "missing.npy"


class Shards(NamedTuple):
    """The shards of ``n_rows`` vectors in a folder, ``shard_rows`` in each but the last, finished or not."""

    folder: Path
    n_rows: int
    shard_rows: int

    def rows(self) -> list[range]:
        """Return the rows of each shard."""
        return [range(first, min(first + self.shard_rows, self.n_rows)) for first in range(0, self.n_rows, self.shard_rows)]

    def path(self, first_row: int) -> Path:
        """Return where the shard that begins with a row is, or will be."""
        return self.folder / f"shard-{first_row // self.shard_rows:05d}.npy"

    def unfinished(self) -> list[range]:
        """Return the rows of each shard that is not there yet, or was cut off or exchanged since."""
        return [rows for rows in self.rows() if not _is_whole(self.path(rows.start), len(rows))]

    def dimension(self) -> int:
        """Return the dimension of the vectors; the first shard must be there."""
        return int(np.load(self.path(0), mmap_mode="r").shape[1])

    def read(self, rows: Rows) -> Vectors:
        """Return the vectors of some rows, float32 of shape (len(rows), dim), from shards that are there."""
        numbers, places = np.divmod(rows, self.shard_rows)
        mapped = {number: np.load(self.path(number * self.shard_rows), mmap_mode="r") for number in np.unique(numbers).tolist()}
        return np.array([mapped[number][place] for number, place in zip(numbers.tolist(), places.tolist(), strict=True)], dtype=np.float32)

    def write(self, rows: range, vectors: Vectors, stored: Stored) -> None:
        """Write the vectors of one shard's rows, shape (len(rows), dim); a crash leaves all of it or nothing.

        Raises:
            IdxError: a component is not finite, or too large for float16; the message names the row.
            ValueError: there is not one vector a row.
            OSError: the disk refuses.
        """
        if len(vectors) != len(rows):
            raise ValueError(f"{len(vectors)} vectors for {len(rows)} rows")
        content = _as_stored(vectors, np.dtype(stored))
        complaint = _complaint(vectors, content, rows)
        if complaint:
            raise IdxError(f"{complaint}; the finished shards are kept")
        with replacing(self.path(rows.start)) as file:
            write_array(file, content)


class ShardChecks:
    """Compares the vectors of shards with the checksums of their files before they are first read. Several threads may ask at once."""

    def __init__(self, shards: Shards, row_bytes: int, files: Mapping[str, CheckedFile]) -> None:
        """Take the finished shards, the bytes of one vector, and their files by name; a shard that is not among these is not compared."""
        self._shards, self._row_bytes, self._files = shards, row_bytes, files
        self._is_seen = np.zeros(shards.n_rows, dtype=np.bool_)

    def check_range(self, start: int, stop: int) -> None:
        """Compare the vectors of rows ``start`` to ``stop``; raises ``ArtifactDamaged`` if one is damaged."""
        if not self._is_seen[start:stop].all():
            self.check_rows(np.arange(start, stop))

    def check_rows(self, rows: Rows) -> None:
        """Compare the vectors of some rows; raises ``ArtifactDamaged`` if one is damaged."""
        unseen = rows[~self._is_seen[rows]]
        numbers = unseen // self._shards.shard_rows
        for number in np.unique(numbers).tolist():
            first_row = number * self._shards.shard_rows
            file = self._files.get(self._shards.path(first_row).name)
            if file is not None:
                n_rows = min(self._shards.shard_rows, self._shards.n_rows - first_row)
                first_byte = file.n_bytes - n_rows * self._row_bytes  # behind the head of the array
                file.check_records(first_byte + (unseen[numbers == number] - first_row) * self._row_bytes, self._row_bytes)
        self._is_seen[unseen] = True


class ScatteredShards:
    """Writes shards whose rows come in any order, straight to the disk. Rows that never come are zeros.

    A shard has its name once all its rows have come, the others when ``finish`` is called; one that is there already stays as it is.
    """

    def __init__(self, shards: Shards, dim: int, stored: str) -> None:
        self._shards, self._dim, self._stored = shards, dim, np.dtype(stored)
        self._rows = shards.rows()
        self._n_left = [0 if _is_whole(shards.path(rows.start), len(rows)) else len(rows) for rows in self._rows]
        self._begun = set[int]()

    def put(self, rows: Rows, vectors: StoredVectors) -> None:
        """Write the vectors, shape (len(rows), dim), of some rows, none of which has come before.

        Raises:
            InputError: a component is not finite, or too large for float16; the message names the row.
            OSError: the disk refuses.
        """
        content = _as_stored(vectors, self._stored)
        complaint = _complaint(vectors, content, rows)
        if complaint:
            raise InputError(complaint)
        numbers = rows // self._shards.shard_rows
        for number in np.unique(numbers).tolist():
            if self._n_left[number]:
                here = np.flatnonzero(numbers == number)
                self._write(number, rows[here], content[here])

    def finish(self) -> None:
        """Give every shard its name."""
        for number, n_left in enumerate(self._n_left):
            if n_left:
                with self._file(number):  # made now if no row of it has come
                    pass
                self._close(number)

    def _write(self, number: int, rows: Rows, content: StoredVectors) -> None:
        row_bytes = self._dim * self._stored.itemsize
        with self._file(number) as file:
            start = file.seek(0, 2) - len(self._rows[number]) * row_bytes
            for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1):
                file.seek(start + (int(rows[run[0]]) - self._rows[number].start) * row_bytes)
                file.write(content[run[0] : run[-1] + 1].data)
        self._n_left[number] -= len(rows)
        if not self._n_left[number]:
            self._close(number)

    @contextlib.contextmanager
    def _file(self, number: int) -> Iterator[IO[bytes]]:
        """Open an unfinished shard; a new one is all zeros."""
        path = self._unfinished(number)
        if number not in self._begun:
            self._begun.add(number)
            shape = (len(self._rows[number]), self._dim)
            with path.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, {"descr": self._stored.str, "fortran_order": False, "shape": shape})
                file.truncate(file.tell() + shape[0] * shape[1] * self._stored.itemsize)
        with path.open("r+b") as file:
            yield file

    def _close(self, number: int) -> None:
        sync(self._unfinished(number))
        self._unfinished(number).replace(self._shards.path(self._rows[number].start))
        sync(self._shards.folder)
        self._n_left[number] = 0

    def _unfinished(self, number: int) -> Path:
        path = self._shards.path(self._rows[number].start)
        return path.with_name(f".{path.name}.part")


def shards_of(path: Path, manifest: Manifest) -> tuple[Shards, Stored]:
    """Return the shards in a directory with a manifest, and the type of their vectors.

    Raises:
        ArtifactDamaged: the manifest does not say.
    """
    said, shard_rows = (manifest.recipe.parameters.get(name) for name in ("dtype", "shard_rows"))
    stored = next((known for known in get_args(Stored) if known == said), None)
    if stored is None or not isinstance(shard_rows, int) or shard_rows < 1:
        raise ArtifactDamaged(f"the manifest of {path} says {shard_rows} rows of '{said}' a shard: build it again with --force")
    return Shards(path, manifest.count("rows"), shard_rows), stored


def missing_of(path: Path, manifest: Manifest, files: Mapping[str, CheckedFile]) -> Rows:
    """Return the rows that have no vector, int64, ascending; ``files`` are those of ``checked_files``.

    Raises:
        ArtifactDamaged: their file is damaged, or does not hold as many as the manifest counts.
    """
    n_missing = manifest.counts.get("missing", 0)
    if MISSING in files:
        files[MISSING].check_all()
    return np.array(map_checked(path / MISSING, (n_missing,), "int64")) if n_missing else np.empty(0, dtype=np.int64)


def _is_whole(path: Path, n_rows: int) -> bool:
    try:
        return bool(np.load(path, mmap_mode="r").shape[:1] == (n_rows,))
    except (OSError, ValueError, EOFError):
        return False


def _as_stored(vectors: StoredVectors, stored: np.dtype[Any]) -> StoredVectors:
    with np.errstate(over="ignore"):  # ``_complaint`` finds it
        content: StoredVectors = np.ascontiguousarray(vectors, dtype=stored)
    return content


def _complaint(vectors: StoredVectors, content: StoredVectors, rows: Rows | range) -> str | None:
    """Return what is wrong with the first of the vectors of some rows that cannot be stored, None if there is none."""
    finite = np.isfinite(content).all(axis=1)
    if finite.all():
        return None
    number = int(np.argmin(finite))
    if np.isfinite(vectors[number]).all():
        return f"the vector of row {rows[number]} has a component too large for {content.dtype}: use --dtype float32"
    return f"the vector of row {rows[number]} is not finite"

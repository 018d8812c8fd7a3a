"""The LMDB database of a store that is being written."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from wikidx.base.errors import StagingCorrupt, find_write_error

from .batches import n_frames

_ROW = struct.Struct(">I")
_FIRST_MAP_BYTES = 256 << 20


class Database:
    """A database of batches, to which one writer appends; ``n_passages`` are on disk.

    Raises:
        StagingCorrupt: the database of an interrupted writer is corrupt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        n_bytes = path.stat().st_size if path.exists() else 0
        try:
            # LMDB's lock file is not needed: a writer holds the lock of the artifact.
            self._environment = lmdb.open(
                os.fsencode(path),  # a text is encoded strictly, which fails for a name outside the locale's characters
                subdir=False,
                map_size=max(_FIRST_MAP_BYTES, 2 * n_bytes),
                lock=False,
                meminit=True,  # otherwise pages would contain stale memory, such as skipped records
            )
        except lmdb.Error as error:
            raise StagingCorrupt(f"{path} cannot be opened: {error}") if n_bytes else find_write_error(path, error) from error
        try:
            self.page_bytes = self._environment.stat()["psize"]
            self.n_passages = self._count_passages(n_bytes)
        except (lmdb.Error, struct.error, StagingCorrupt) as error:
            self.close()  # otherwise this process could not open the path again
            raise StagingCorrupt(f"{path} is corrupt: {error}") from error

    def _count_passages(self, n_bytes: int) -> int:
        if n_bytes and n_bytes < (self._environment.info()["last_pgno"] + 1) * self.page_bytes:
            raise StagingCorrupt("it is cut off")  # and reading beyond the end of a mapped file would end the process
        with self._environment.begin(buffers=True) as transaction:
            cursor = transaction.cursor()
            return int(_ROW.unpack(cursor.key())[0]) + n_frames(cursor.value()) if cursor.last() else 0

    def append(self, batch: bytes) -> None:
        """Store the next batch in one transaction, which is on disk afterwards.

        Raises:
            OSError: the disk is full or fails.
        """
        # A value as large as a page has pages of its own, where ``find_places`` looks for it.
        key, value = _ROW.pack(self.n_passages), batch.ljust(self.page_bytes, b"\0")
        while True:
            try:
                with self._errors(self._path), self._environment.begin(write=True) as transaction:
                    transaction.put(key, value, append=True)
                break
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
        self.n_passages += n_frames(batch)

    def copy(self, path: Path) -> None:
        """Copy the database to a file without free pages: the same batches give the same bytes. Raises ``OSError``."""
        self._environment.set_mapsize(_FIRST_MAP_BYTES)  # the file records it; LMDB takes no less than the file needs
        with self._errors(path), path.open("wb") as file:
            self._environment.copyfd(file.fileno(), compact=True)

    def close(self) -> None:
        """Close the database."""
        self._environment.close()

    def delete(self) -> None:
        """Close the database, and delete it."""
        self.close()
        self._path.unlink()

    @contextmanager
    def _errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except lmdb.MapFullError:
            raise
        except lmdb.Error as error:
            raise find_write_error(path, error) from error

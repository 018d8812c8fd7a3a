"""Reads a finished store: by row, by id, by title; many processes, threads and forks at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from corpora.errors import ArtifactDamaged
from corpora.passage import Passage

from .layout import (
    DATABASE,
    DICTIONARY,
    MAX_KEY_BYTES,
    ROW,
    RUN,
    TEXT_KEYS,
    Database,
    Decompress,
    damage_named,
    decompressor,
    shared_database,
    title_key,
    unpack,
)
from .pages import CheckedPages

Rows = NDArray[np.int64]
TextKeys = NDArray[np.uint64]

NO_ROW = -1

_READ_ROWS = 1024


class PassageStore:
    """A finished store, memory-mapped.

    Attributes:
        folder: where its files are.
        fingerprint: identifies the passages and their order.
    """

    def __init__(self, folder: Path, fingerprint: str, n_passages: int) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        if (folder / TEXT_KEYS).stat().st_size != 8 * n_passages:
            raise ArtifactDamaged(
                f"{folder / TEXT_KEYS} does not have 8 bytes for each of {n_passages:,} passages: build again with --force"
            )
        self._text_key: TextKeys = np.memmap(folder / TEXT_KEYS, dtype="<u8", mode="r", shape=(n_passages,))
        self._path = folder / DATABASE
        self._pages = CheckedPages(self._path)  # before LMDB reads any of them
        self._n_passages = n_passages
        self._local = threading.local()  # zstd contexts belong to one thread
        self._database, self._pid = shared_database(self._path), os.getpid()
        found = (self._database.count(self._database.passages), self._database.count(self._database.ids))
        if found != (n_passages, n_passages):
            raise ArtifactDamaged(f"{self._path} holds {found[0]:,} passages and {found[1]:,} ids, its manifest says {n_passages:,}")

    def __len__(self) -> int:
        return self._n_passages

    @property
    def text_key(self) -> TextKeys:
        """uint64, shape (n,): equal for texts equal up to case, spacing and compatibility form (``passage.text_key``).

        Raises:
            ArtifactDamaged: one of them is damaged.
        """
        self._pages.check_text_keys(self._text_key)
        return self._text_key

    def get_many(self, rows: Sequence[int] | Rows) -> list[Passage]:
        """Return the passages of the rows, in their order.

        Raises:
            TypeError: the rows are not integers.
            ValueError: a row is outside the store, -1 included.
            ArtifactDamaged: what is read is damaged.
        """
        wanted = np.asarray(rows)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise TypeError(f"rows are {wanted.dtype}, not integers")
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < self._n_passages):
            raise ValueError(f"rows from {wanted.min()} to {wanted.max()} are asked for, the store has 0 to {self._n_passages - 1}")
        packed = wanted.astype(">u4").tobytes()
        decompress = self._decompressor()
        self._pages.check_rows(wanted)
        with self._reading() as (database, txn):
            found = txn.cursor(database.passages).getmulti([packed[i : i + ROW.size] for i in range(0, len(packed), ROW.size)])
            passages = [unpack(raw) for raw in decompress([frame for _, frame in found])]
        if len(passages) != len(wanted):
            raise ArtifactDamaged(
                f"{self._path} lacks {len(wanted) - len(passages)} of {len(wanted)} rows: idx check finds what is damaged"
            )
        return passages

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Passage]:
        """Yield the passages of rows ``start`` to ``stop`` (default: the end) in order, with bounded memory."""
        end = self._n_passages if stop is None else min(stop, self._n_passages)
        for first in range(start, end, _READ_ROWS):
            yield from self.get_many(range(first, min(first + _READ_ROWS, end)))

    def rows_of(self, ids: Sequence[str]) -> Rows:
        """Return int64 rows, shape (len(ids),), of the ids; -1 for an id that the store does not have; raises as ``get_many`` does."""
        self._pages.check_names()
        keys = [id_.encode(errors="surrogatepass") for id_ in ids]
        with self._reading() as (database, txn):
            found = txn.cursor(database.ids).getmulti([key for key in keys if 0 < len(key) <= MAX_KEY_BYTES])
            rows = {bytes(key): ROW.unpack(row)[0] for key, row in found}
        return np.array([rows.get(key, NO_ROW) for key in keys], dtype=np.int64)

    def rows_titled(self, title: str) -> Rows:
        """Return the int64 rows, ascending, of all passages with exactly this title; raises as ``get_many`` does."""
        self._pages.check_names()
        with self._reading() as (database, txn):
            found = txn.cursor(database.titles).getmulti([title_key(title.encode(errors="surrogatepass"))], dupdata=True)
            runs = [RUN.unpack(value) for _, value in found]
        return np.array(sorted(row for first, n in runs for row in range(first, first + n)), dtype=np.int64)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Database, lmdb.Transaction]]:
        """Open a read transaction."""
        database = self._opened()
        with damage_named(self._path), database.environment.begin(buffers=True) as txn:
            yield database, txn

    def _opened(self) -> Database:
        """Return the environment of this process: one that was opened before a fork must not be used after it."""
        if self._pid != os.getpid():
            self._database, self._pid = shared_database(self._path), os.getpid()
            self._local = threading.local()
        return self._database

    def _decompressor(self) -> Decompress:
        decompress: Decompress | None = getattr(self._local, "decompress", None)
        if decompress is None:
            self._local.decompress = decompress = decompressor(self._opened().about_value(DICTIONARY) or b"")
        return decompress

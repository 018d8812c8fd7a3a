"""FAISS's inverted lists, merged from pieces on disk: each piece holds some rows, sorted by list; all pieces together become one file.

No more than a piece, or a range of lists, is held in memory. The file equals FAISS's after adding all rows in order.
(Format: facebookresearch/faiss, faiss/impl/index_write.cpp.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.durable import replacing
from wikidx.corpora.errors import PiecesDamaged
from wikidx.corpora.progress import Progress
from wikidx.corpora.store import Rows

Codes = NDArray[np.uint8]
Lists = NDArray[np.int64]

_ROW_BYTES = 8
_STRETCH_BYTES = 256 << 20
# FAISS's header of empty lists: "ilar", their number, the size of a code, "sprs", the length of the table of non-empty lists
NO_LISTS_BYTES = 4 + 8 + 8 + 4 + 8


class Piece(NamedTuple):
    """A file with some rows and their codes, sorted by list, and within a list by row.

    It holds the cumulative number of entries of each list (int64), then the rows (int64), then the codes (uint8).
    """

    path: Path
    n_lists: int
    code_bytes: int

    def write(self, lists: Lists, rows: Rows, codes: Codes) -> None:
        """Write the entries, given in any order of lists; within a list the given order is kept.

        Args:
            lists: shape (n,).
            rows: shape (n,).
            codes: shape (n, code_bytes).
        """
        order = np.argsort(lists, kind="stable")
        with replacing(self.path) as file:
            file.write(np.cumsum(np.bincount(lists, minlength=self.n_lists)).astype(np.int64).data)
            file.write(rows[order].data)
            file.write(codes[order].data)

    def ends(self) -> Lists:
        """Return the cumulative number of entries of each list, shape (n_lists,).

        Raises:
            PiecesDamaged: the file has the wrong size.
        """
        found = np.fromfile(self.path, dtype=np.int64, count=self.n_lists)
        n_bytes = self.path.stat().st_size
        if len(found) < self.n_lists or n_bytes != found.nbytes + int(found[-1]) * (_ROW_BYTES + self.code_bytes):
            raise PiecesDamaged(f"{self.path} has {n_bytes:,} bytes, which is no piece of an index")
        return found

    def entries(self, ends: Lists, first: int, stop: int) -> tuple[Lists, Rows, Codes]:
        """Return the entries of the lists from ``first`` to before ``stop``: list, row and code of each."""
        sizes = np.diff(ends, prepend=0)[first:stop]
        begin = int(ends[first - 1]) if first else 0
        n, n_all = int(sizes.sum()), int(ends[-1])
        with self.path.open("rb") as file:
            file.seek(ends.nbytes + begin * _ROW_BYTES)
            rows = np.fromfile(file, dtype=np.int64, count=n)
            file.seek(ends.nbytes + n_all * _ROW_BYTES + begin * self.code_bytes)
            codes = np.fromfile(file, dtype=np.uint8, count=n * self.code_bytes)
        return np.repeat(np.arange(first, stop), sizes), rows, codes.reshape(n, self.code_bytes)


def write_lists(file: IO[bytes], pieces: Sequence[Piece], progress: Progress) -> None:
    """Write the lists with the entries of all pieces in FAISS's format, each piece's after those of the earlier ones.

    Raises:
        PiecesDamaged: a piece is corrupt.
    """
    sizes = np.zeros(pieces[0].n_lists, dtype=np.int64)
    for piece in pieces:
        sizes += np.diff(piece.ends(), prepend=0)
    _write_table(file, sizes, pieces[0].code_bytes)
    n_done, n_all = 0, int(sizes.sum())
    for first, stop in _stretches(sizes, _ROW_BYTES + pieces[0].code_bytes):
        entries = zip(*(piece.entries(piece.ends(), first, stop) for piece in pieces), strict=True)
        lists, rows, codes = (np.concatenate(part) for part in entries)
        order = np.argsort(lists, kind="stable")
        starts = np.concatenate(([0], np.cumsum(sizes[first:stop])))
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            file.write(codes[order[begin:end]].data)
            file.write(rows[order[begin:end]].data)
        n_done += len(order)
        progress(n_done, n_all)


def _write_table(file: IO[bytes], sizes: Lists, code_bytes: int) -> None:
    """Write the length of each list: of all, or of the non-empty ones if these are at most half."""
    used = np.flatnonzero(sizes)
    is_full = len(used) > len(sizes) // 2
    table = sizes if is_full else np.stack([used, sizes[used]], axis=1).ravel()
    file.write(b"ilar" + np.array([len(sizes), code_bytes], dtype=np.uint64).tobytes())
    file.write((b"full" if is_full else b"sprs") + np.uint64(len(table)).tobytes() + table.astype(np.uint64).tobytes())


def _stretches(sizes: Lists, entry_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of lists, first and stop, that together hold about 256 MiB, or a single larger list."""
    first, n = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if n and (n + size) * entry_bytes > _STRETCH_BYTES:
            yield first, number
            first, n = number, 0
        n += size
    yield first, len(sizes)

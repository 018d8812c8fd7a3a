"""FAISS's inverted lists, merged into one file from shards on disk. Each shard holds a range of rows, sorted by list.

Memory holds one shard, or one range of lists. The file equals the file that FAISS writes after all rows were added in order.
(Format: facebookresearch/faiss, faiss/impl/index_write.cpp.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import atomic_write
from wikidx.base.errors import StagingCorrupt
from wikidx.base.progress import Progress
from wikidx.corpora.passage import Rows

Codes = NDArray[np.uint8]
Lists = NDArray[np.int64]

_ROW_BYTES = 8
_RANGE_BYTES = 256 << 20
# FAISS's format of empty lists: "ilar", number of lists, size of a code, "sprs", length of the table of non-empty lists
NO_LISTS_BYTES = 4 + 8 + 8 + 4 + 8


class ListShard(NamedTuple):
    """A file with rows and their codes, sorted by list, and by row within a list.

    It holds the cumulative number of entries of each list (int64), then the rows (int64), then the codes (uint8).
    """

    path: Path
    n_lists: int
    code_bytes: int

    def write(self, lists: Lists, rows: Rows, codes: Codes) -> None:
        """Write entries, sorted by list. The entries of a list keep their order.

        Args:
            lists: list of each entry, shape (n,).
            rows: row of each entry, shape (n,).
            codes: code of each entry, shape (n, code_bytes).
        """
        order = np.argsort(lists, kind="stable")
        with atomic_write(self.path) as file:
            file.write(np.cumsum(np.bincount(lists, minlength=self.n_lists)).astype(np.int64).data)
            file.write(rows[order].data)
            file.write(codes[order].data)

    def ends(self) -> Lists:
        """Return the cumulative number of entries of each list, shape (n_lists,).

        Raises:
            StagingCorrupt: the file has the wrong size.
        """
        ends = np.fromfile(self.path, dtype=np.int64, count=self.n_lists)
        n_bytes = self.path.stat().st_size
        if len(ends) < self.n_lists or n_bytes != ends.nbytes + int(ends[-1]) * (_ROW_BYTES + self.code_bytes):
            raise StagingCorrupt(f"{self.path} has {n_bytes:,} bytes, which is no shard of an index")
        return ends

    def entries(self, ends: Lists, first: int, stop: int) -> tuple[Lists, Rows, Codes]:
        """Return list, row and code of each entry of the lists from ``first`` to before ``stop``; ``ends`` is the result of ``ends()``."""
        sizes = np.diff(ends, prepend=0)[first:stop]
        begin = int(ends[first - 1]) if first else 0
        n, n_all = int(sizes.sum()), int(ends[-1])
        with self.path.open("rb") as file:
            file.seek(ends.nbytes + begin * _ROW_BYTES)
            rows = np.fromfile(file, dtype=np.int64, count=n)
            file.seek(ends.nbytes + n_all * _ROW_BYTES + begin * self.code_bytes)
            codes = np.fromfile(file, dtype=np.uint8, count=n * self.code_bytes)
        return np.repeat(np.arange(first, stop), sizes), rows, codes.reshape(n, self.code_bytes)


def write_lists(file: IO[bytes], shards: Sequence[ListShard], progress: Progress) -> None:
    """Write lists with the entries of all shards, in FAISS's format. The entries of a list are in the order of the shards.

    Raises:
        StagingCorrupt: a shard is corrupt.
    """
    sizes = np.zeros(shards[0].n_lists, dtype=np.int64)
    for shard in shards:
        sizes += np.diff(shard.ends(), prepend=0)
    _write_table(file, sizes, shards[0].code_bytes)
    n_done, n_all = 0, int(sizes.sum())
    for first, stop in _list_ranges(sizes, _ROW_BYTES + shards[0].code_bytes):
        entries = zip(*(shard.entries(shard.ends(), first, stop) for shard in shards), strict=True)
        lists, rows, codes = (np.concatenate(arrays) for arrays in entries)
        order = np.argsort(lists, kind="stable")
        starts = np.concatenate(([0], np.cumsum(sizes[first:stop])))
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            file.write(codes[order[begin:end]].data)
            file.write(rows[order[begin:end]].data)
        n_done += len(order)
        progress(n_done, n_all)


def _write_table(file: IO[bytes], sizes: Lists, code_bytes: int) -> None:
    """Write a table of the lists' lengths. If at most half of the lists are non-empty, the table has only these, with their numbers."""
    non_empty = np.flatnonzero(sizes)
    is_full = len(non_empty) > len(sizes) // 2
    table = sizes if is_full else np.stack([non_empty, sizes[non_empty]], axis=1).ravel()
    file.write(b"ilar" + np.array([len(sizes), code_bytes], dtype=np.uint64).tobytes())
    file.write((b"full" if is_full else b"sprs") + np.uint64(len(table)).tobytes() + table.astype(np.uint64).tobytes())


def _list_ranges(sizes: Lists, entry_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first list and the end of each range of lists. A range holds up to 256 MiB, or a single larger list."""
    first, n = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if n and (n + size) * entry_bytes > _RANGE_BYTES:
            yield first, number
            first, n = number, 0
        n += size
    yield first, len(sizes)

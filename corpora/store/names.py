"""Lookup of rows by id or title, in sorted uint64 words: the crc32 of a name in the upper half, its row in the lower half.

Different names may have the same crc32, so that a lookup also compares the passages' names.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]

_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


def word(name: bytes, row: int) -> int:
    """Return the uint64 word for a row and its id or title."""
    return zlib.crc32(name) << _ROW_BITS | row


def sort(path: Path) -> Words:
    """Sort the words of a file in place, through a memory map, and return them."""
    words = np.memmap(path, dtype="<u8", mode="r+")
    words.sort()
    words.flush()
    return words


def colliding_rows(words: Words) -> list[Rows]:
    """Return the ascending rows of each repeated crc32 in sorted words."""
    checksums = words.view("<u4")[1::2]
    is_next_equal = checksums[1:] == checksums[:-1]
    edges = np.flatnonzero(np.diff(is_next_equal, prepend=False, append=False)).reshape(-1, 2)
    return [(words[first : last + 1] & np.uint64(_ROW_MASK)).astype(np.int64) for first, last in edges.tolist()]


def find_candidates(words: Words, names: Sequence[bytes]) -> tuple[Rows, Rows]:
    """Return ascending positions in ``names``, and the rows that may have these names, ascending for each name."""
    firsts = np.array([word(name, 0) for name in names], dtype=words.dtype)
    starts, ends = np.searchsorted(words, firsts), np.searchsorted(words, firsts | np.uint64(_ROW_MASK), side="right")
    counts = ends - starts
    indices = np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return np.repeat(np.arange(len(names)), counts), (words[indices] & np.uint64(_ROW_MASK)).astype(np.int64)

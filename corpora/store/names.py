"""Lookup of rows by name (an id or a title), in sorted uint64 words.

The upper half of a word is the crc32 of a name, the lower half its row. Different names may have the same crc32, so that the caller must
compare the names of the passages found.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Rows

Words = NDArray[np.uint64]

_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


def word(name: bytes, row: int) -> int:
    """Return the uint64 word of a row and its name."""
    return zlib.crc32(name) << _ROW_BITS | row


def sort(path: Path) -> Words:
    """Sort the words of a file in place, and return them memory-mapped."""
    words = np.memmap(path, dtype="<u8", mode="r+")
    words.sort()
    words.flush()
    return words


def colliding_rows(words: Words) -> list[Rows]:
    """Return, for each crc32 that occurs more than once in sorted words, its rows in ascending order."""
    checksums = words.view("<u4")[1::2]
    is_next_equal = checksums[1:] == checksums[:-1]
    edges = np.flatnonzero(np.diff(is_next_equal, prepend=False, append=False)).reshape(-1, 2)
    return [(words[first : last + 1] & np.uint64(_ROW_MASK)).astype(np.int64) for first, last in edges.tolist()]


def find_candidates(words: Words, names: Sequence[bytes]) -> tuple[Rows, Rows]:
    """Return the rows that may have one of the names.

    Returns:
        Two parallel arrays: positions in ``names``, ascending, and rows, ascending for each name.
    """
    firsts = np.array([word(name, 0) for name in names], dtype=words.dtype)
    starts, ends = np.searchsorted(words, firsts), np.searchsorted(words, firsts | np.uint64(_ROW_MASK), side="right")
    counts = ends - starts
    indices = np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return np.repeat(np.arange(len(names)), counts), (words[indices] & np.uint64(_ROW_MASK)).astype(np.int64)

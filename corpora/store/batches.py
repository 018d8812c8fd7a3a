"""Batches of passages: many frames, each one passage, in one LMDB value.

A batch begins with the offsets (u32, little-endian) of the start of each frame and of the end of the last frame. The frames follow, and
zeros up to the size of a page of LMDB, if the batch is smaller.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .frames import Vocabulary, sizes
from .layout import bytes_of

Places = NDArray[np.int64]  # first row, start and end of each batch, (n, 3)
Check = Callable[[NDArray[np.int64], NDArray[np.int64]], None]

_OFFSET = struct.Struct("<I")
_HEADER_BYTES = 16  # of a page of LMDB: its number (u64), u16 for other uses, flags (u16), and the number of pages of a large value (u32)
_N_META_PAGES = 2
_IS_LARGE_VALUE = 4


def join(frames: Sequence[bytes]) -> bytes:
    """Join frames into a batch."""
    offsets = itertools.accumulate((len(frame) for frame in frames), initial=_OFFSET.size * (len(frames) + 1))
    return b"".join([*map(_OFFSET.pack, offsets), *frames])


def n_frames(batch: bytes | memoryview) -> int:
    """Return the number of frames in a batch; raises ``struct.error`` if it has no bytes."""
    return int(_OFFSET.unpack_from(batch)[0]) // _OFFSET.size - 1


def find_places(content: NDArray[np.uint8], page_bytes: int) -> Places:
    """Return the places of the batches in an LMDB file without free pages, where they follow one another by their keys."""
    view, places, first_row = content.data, [], 0
    for start in _large_values(view, page_bytes):
        n = n_frames(view[start:])
        (n_bytes,) = _OFFSET.unpack_from(view, start + _OFFSET.size * n)
        places.append((first_row, start, start + n_bytes))
        first_row += n
    return np.array(places, dtype="<i8").reshape(-1, 3)


def _large_values(content: memoryview, page_bytes: int) -> Iterator[int]:
    """Yield the start of each value that has pages of its own."""
    page = _N_META_PAGES
    while page * page_bytes < len(content):
        flags, n_pages = struct.unpack_from("<HI", content, page * page_bytes + 10)
        if flags & _IS_LARGE_VALUE:
            yield page * page_bytes + _HEADER_BYTES
        page += n_pages if flags & _IS_LARGE_VALUE else 1


class Batches:
    """The batches of a store, for reading.

    Args:
        content: the file that contains the batches, mapped.
        places: the place of each batch in it, by ascending rows; there is at least one.
        vocabulary: the phrases of the store.
        check: verifies the bytes of ``content`` from ``starts[i]`` to before ``stops[i]``; raises ``ArtifactCorrupt``.
    """

    def __init__(self, content: NDArray[np.uint8], places: Places, vocabulary: Vocabulary, check: Check) -> None:
        self._first_rows, self._starts, _ = np.ascontiguousarray(places.T)
        self._content, self._vocabulary, self._check = bytes_of(content), vocabulary, check

    def passages(self, rows: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of existing rows, in the order of ``rows``; raises ``ArtifactCorrupt``."""
        frames = self.locate(rows)
        self._check(frames[:, 0], frames[:, 1])
        return self._vocabulary.decode(self._content, frames)

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many bytes each row's passage has at most; raises ``ArtifactCorrupt``."""
        frames = self.locate(rows)
        self._check(frames[:, 0], frames[:, 1])
        return sizes(self._content, frames)

    def locate(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the start and the end of each row's frame in the file, (n, 2); raises ``ArtifactCorrupt``."""
        numbers = self._first_rows.searchsorted(rows, side="right") - 1
        starts = self._starts[numbers]
        entries = starts + _OFFSET.size * (rows - self._first_rows[numbers])
        self._check(entries, entries + 2 * _OFFSET.size)
        frames = np.empty((len(rows), 2), dtype=np.int64)
        np.add(starts, self._content.offsets[entries], out=frames[:, 0])
        np.add(starts, self._content.offsets[entries + _OFFSET.size], out=frames[:, 1])
        return frames

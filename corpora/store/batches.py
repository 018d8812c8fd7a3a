"""Batches of passages: many frames, each one passage, in one LMDB value.

A batch begins with the offsets (u32, little-endian) of the start of each frame and of the end of the last frame. The frames follow.
Batching keeps LMDB's tree small. A finished store lists the places of its batches in the file (see ``checks``), which is mapped: LMDB's
Python package would read every page of a value that it returns.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from . import vocabulary
from .layout import ROW, VOCABULARY, Database, corruption_errors
from .views import bytes_of
from .vocabulary import Vocabulary

Places = NDArray[np.int64]  # first row, start and end of each batch, (n, 3)

_OFFSET = struct.Struct("<I")


def join(frames: Sequence[bytes]) -> bytes:
    """Join frames into a batch."""
    offsets = itertools.accumulate((len(frame) for frame in frames), initial=_OFFSET.size * (len(frames) + 1))
    return b"".join([*map(_OFFSET.pack, offsets), *frames])


class Batches:
    """The batches of a database, for reading.

    Args:
        database: the database.
        content: memory that contains the batches, read-only; in a finished store, its file.
        places: the place of each batch in it, by ascending rows; there is at least one.

    Raises:
        ArtifactCorrupt: the vocabulary or the last batch is corrupt.
    """

    def __init__(self, database: Database, content: NDArray[np.uint8] | mmap.mmap, places: Places) -> None:
        self.database, self.content, self.places = database, content, places
        self._first_rows, self._starts, self._ends = np.ascontiguousarray(places.T)
        self._bytes = bytes_of(np.frombuffer(content, dtype=np.uint8))
        with corruption_errors(database.path):
            self._vocabulary = Vocabulary(database.read_about(VOCABULARY) or b"")
            self.n_passages = int(self._first_rows[-1]) + _n_frames(self._bytes.each.data[self._starts[-1] :])

    def passages(self, rows: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of existing rows, in the order of ``rows``; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return self._vocabulary.decode(self._bytes, self._locate(rows), rows)

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many bytes each row's frame holds at most; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return vocabulary.sizes(self._bytes, self._locate(rows))

    def read_ahead(self, first: int, last: int) -> None:
        """Have the system read the passages of rows from ``first`` to ``last``, which it would otherwise read page by page."""
        if isinstance(self.content, mmap.mmap) and hasattr(mmap, "MADV_WILLNEED"):
            (start, _), (_, end) = self._locate(np.array([first, last])).tolist()
            if 0 <= start < end:  # neither batch is corrupt, and they follow one another in the file
                start -= start % mmap.PAGESIZE
                self.content.madvise(mmap.MADV_WILLNEED, start, end - start)

    def _locate(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the start and the end of each row's frame in the content, (n, 2); -1 if the batch is corrupt."""
        numbers = self._first_rows.searchsorted(rows, side="right") - 1
        starts, stops = self._starts[numbers], self._ends[numbers]
        entries = starts + _OFFSET.size * (rows - self._first_rows[numbers])
        is_sound = entries + 2 * _OFFSET.size <= stops
        entries *= is_sound
        frames = np.empty((len(rows), 2), dtype=np.int64)
        np.add(starts, self._bytes.offsets[entries], out=frames[:, 0])
        np.add(starts, self._bytes.offsets[entries + _OFFSET.size], out=frames[:, 1])
        is_sound &= (frames[:, 0] < frames[:, 1]) & (frames[:, 1] <= stops)
        frames[~is_sound] = -1
        return frames


@contextmanager
def stored_batches(database: Database) -> Iterator[Batches]:
    """Give the batches of a database that is being written, at least one; all of them are read. Raises ``ArtifactCorrupt``."""
    with database.environment.begin(buffers=True) as transaction:  # keeps the values valid
        with corruption_errors(database.path):
            pairs = list(transaction.cursor(database.passages))
            first_rows = [ROW.unpack(key)[0] for key, _ in pairs]
        addresses = np.array([np.frombuffer(value, dtype=np.uint8).ctypes.data for _, value in pairs], dtype=np.int64)
        starts = addresses - addresses.min()
        ends = starts + [len(value) for _, value in pairs]
        # One array over all values and the pages between them: LMDB maps the file as a whole.
        content = np.ctypeslib.as_array((ctypes.c_uint8 * int(ends.max())).from_address(int(addresses.min())))
        content.flags.writeable = False  # as a mapped file is: kernels are compiled for one of both
        yield Batches(database, content, np.array([first_rows, starts, ends], dtype=np.int64).T)


def count_passages(database: Database) -> int:
    """Return the number of passages in a database; raises ``ArtifactCorrupt``."""
    with corruption_errors(database.path), database.environment.begin(buffers=True) as transaction:
        cursor = transaction.cursor(database.passages)
        return int(ROW.unpack(cursor.key())[0]) + _n_frames(cursor.value()) if cursor.last() else 0


def _n_frames(batch: memoryview) -> int:
    return int(_OFFSET.unpack_from(batch)[0]) // _OFFSET.size - 1

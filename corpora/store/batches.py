"""Batches of passages: many frames, each one compressed passage, in one LMDB value.

A batch begins with the offsets (u32, little-endian) of the start of each frame and of the end of the last frame. The frames follow.
Batching keeps LMDB's tree small. Opening a store reads the tree once to locate the batches; the offsets then locate the frames.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .layout import DICTIONARY, ROW, Database, Decompress, Frames, corruption_errors, decompressor, unpack

_OFFSET = struct.Struct("<I")
_FRAME = struct.Struct("<II")
_LARGEST = 1 << 40  # upper limit of returned sizes, because the size in a corrupt frame may not fit into int64


def join(frames: Sequence[bytes]) -> bytes:
    """Join frames into a batch."""
    offsets = itertools.accumulate((len(frame) for frame in frames), initial=_OFFSET.size * (len(frames) + 1))
    return b"".join([*map(_OFFSET.pack, offsets), *frames])


class Batches:
    """The batches of a database, for reading.

    Raises:
        ArtifactCorrupt: the database is corrupt.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._dictionary = database.read_about(DICTIONARY) or b""
        with corruption_errors(database.path):
            self._transaction = database.environment.begin(buffers=True)  # keeps the values valid
            pairs = list(self._transaction.cursor(database.passages))
            self.values: list[memoryview] = [value for _, value in pairs]
            self._first_rows = np.array([ROW.unpack(key)[0] for key, _ in pairs], dtype=np.int64)
            n_last = _OFFSET.unpack_from(self.values[-1])[0] // _OFFSET.size - 1 if pairs else 0
            self.n_passages = int(self._first_rows[-1]) + n_last if pairs else 0

    def close(self) -> None:
        """End the transaction that keeps the values valid."""
        self._transaction.abort()

    def decompressor(self) -> Decompress:
        """Return a function that decompresses frames; each thread needs its own."""
        return decompressor(self._dictionary)

    def passages(self, rows: NDArray[np.int64], decompress: Decompress) -> list[Passage]:
        """Return the passages of existing rows, in the order of ``rows``; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return list(map(unpack, decompress(self._frames(rows)), rows.tolist()))

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the decompressed size of each row's frame in bytes; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            sizes = map(zstandard.frame_content_size, self._frames(rows))
            return np.array([min(size, _LARGEST) for size in sizes], dtype=np.int64)

    def _frames(self, rows: NDArray[np.int64]) -> Frames:
        numbers = np.searchsorted(self._first_rows, rows, side="right") - 1
        offsets = _OFFSET.size * (rows - self._first_rows[numbers])
        frames: Frames = []
        for number, offset in zip(numbers.tolist(), offsets.tolist(), strict=True):
            value = self.values[number]
            start, end = _FRAME.unpack_from(value, offset)
            frames.append(value[start:end])
        return frames

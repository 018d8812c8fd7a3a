"""Batches of passages, each one LMDB value: the starts of its frames and the end of the last (u32, little-endian), then the frames.

Batching keeps LMDB's tree small: a row is located by arithmetic within its batch, and LMDB is read once, for the positions of the batches.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .layout import DICTIONARY, ROW, Database, Decompress, Frames, damage_named, decompressor, unpack

_PLACE = struct.Struct("<I")
_FRAME = struct.Struct("<II")
_LARGEST = 1 << 40  # size; corrupt data may claim more


def join(frames: Sequence[bytes]) -> bytes:
    """Return the batch that holds the frames."""
    places = itertools.accumulate((len(frame) for frame in frames), initial=_PLACE.size * (len(frames) + 1))
    return b"".join([*map(_PLACE.pack, places), *frames])


class Batches:
    """The batches of a finished database; per process, and immutable."""

    def __init__(self, database: Database) -> None:
        """Locate the batches.

        Raises:
            ArtifactDamaged: the database is corrupt.
        """
        self.database = database
        self._dictionary = database.about_value(DICTIONARY) or b""
        with damage_named(database.path):
            self._transaction = database.environment.begin(buffers=True)  # keeps the values valid
            pairs = list(self._transaction.cursor(database.passages))
            self.values: list[memoryview] = [value for _, value in pairs]
            self._first_rows = np.array([ROW.unpack(key)[0] for key, _ in pairs], dtype=np.int64)
            n_last = _PLACE.unpack_from(self.values[-1])[0] // _PLACE.size - 1 if pairs else 0
            self.n_passages = int(self._first_rows[-1]) + n_last if pairs else 0

    def close(self) -> None:
        """Release the values."""
        self._transaction.abort()

    def decompressor(self) -> Decompress:
        """Return the function that decompresses the frames; one per thread."""
        return decompressor(self._dictionary)

    def passages(self, rows: NDArray[np.int64], decompress: Decompress) -> list[Passage]:
        """Return the passages of existing rows, in order; raises ``ArtifactDamaged``."""
        with damage_named(self.database.path):
            return list(map(unpack, decompress(self._frames(rows)), rows.tolist()))

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the decompressed size of each of the rows in bytes; raises ``ArtifactDamaged``."""
        with damage_named(self.database.path):
            sizes = map(zstandard.frame_content_size, self._frames(rows))
            return np.array([min(size, _LARGEST) for size in sizes], dtype=np.int64)

    def _frames(self, rows: NDArray[np.int64]) -> Frames:
        numbers = np.searchsorted(self._first_rows, rows, side="right") - 1
        places = _PLACE.size * (rows - self._first_rows[numbers])
        frames: Frames = []
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            value = self.values[number]
            start, end = _FRAME.unpack_from(value, place)
            frames.append(value[start:end])
        return frames

"""Batches of passages: many frames, each one passage, in one LMDB value.

A batch begins with the offsets (u32, little-endian) of the start of each frame and of the end of the last frame. The frames follow.
Batching keeps LMDB's tree small. Opening a store reads the tree once to locate the batches; the offsets then locate the frames.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from . import vocabulary
from .layout import ROW, VOCABULARY, Database, corruption_errors
from .views import bytes_of
from .vocabulary import Vocabulary

_OFFSET = struct.Struct("<I")


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
        with corruption_errors(database.path):
            self._vocabulary = Vocabulary(database.read_about(VOCABULARY) or b"")
            self._transaction = database.environment.begin(buffers=True)  # keeps the values valid
            pairs = list(self._transaction.cursor(database.passages))
            self.values: list[memoryview] = [value for _, value in pairs]
            self._first_rows = np.array([ROW.unpack(key)[0] for key, _ in pairs], dtype=np.int64)
            n_last = _OFFSET.unpack_from(self.values[-1])[0] // _OFFSET.size - 1 if pairs else 0
            self.n_passages = int(self._first_rows[-1]) + n_last if pairs else 0
        starts = np.array([np.frombuffer(value, np.uint8).ctypes.data for value in self.values], dtype=np.int64)
        first, sizes = int(starts.min(initial=1 << 62)), np.array([len(value) for value in self.values], dtype=np.int64)
        self._starts, self._ends = starts - first, starts - first + sizes
        # One array over all values and the pages between them: LMDB maps the file as a whole.
        n_bytes = int(self._ends.max(initial=0))
        self._content = bytes_of(np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(first)) if pairs else np.empty(0, np.uint8))

    def close(self) -> None:
        """End the transaction that keeps the values valid."""
        self._transaction.abort()

    def passages(self, rows: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of existing rows, in the order of ``rows``; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return self._vocabulary.decode(self._content, self._locate(rows), rows)

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many bytes each row's frame holds at most; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return vocabulary.sizes(self._content, self._locate(rows))

    def _locate(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the start and the end of each row's frame in the content, (n, 2); -1 if the batch is corrupt."""
        numbers = self._first_rows.searchsorted(rows, side="right") - 1
        starts, stops = self._starts[numbers], self._ends[numbers]
        entries = starts + _OFFSET.size * (rows - self._first_rows[numbers])
        is_sound = entries + 2 * _OFFSET.size <= stops
        entries *= is_sound
        frames = np.empty((len(rows), 2), dtype=np.int64)
        np.add(starts, self._content.offsets[entries], out=frames[:, 0])
        np.add(starts, self._content.offsets[entries + _OFFSET.size], out=frames[:, 1])
        is_sound &= (frames[:, 0] <= frames[:, 1]) & (frames[:, 1] <= stops)
        frames[~is_sound] = -1
        return frames

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

from wikidx.corpora.errors import ArtifactCorrupt
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
        content: memory that contains the batches.
        places: the place of each batch in it, by ascending rows.

    Raises:
        ArtifactCorrupt: the vocabulary is corrupt.
    """

    def __init__(self, database: Database, content: NDArray[np.uint8], places: Places) -> None:
        self.database, self.content, self.places = database, content, places
        self._first_rows, self._starts, self._ends = np.ascontiguousarray(places.T)
        self._bytes = bytes_of(content)
        with corruption_errors(database.path):
            self._vocabulary = Vocabulary(database.read_about(VOCABULARY) or b"")
        n_last = _n_frames(content.data[self._starts[-1] :]) if len(places) else 0
        self.n_passages = int(self._first_rows[-1]) + n_last if len(places) else 0

    def passages(self, rows: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of existing rows, in the order of ``rows``; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return self._vocabulary.decode(self._bytes, self._locate(rows), rows)

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many bytes each row's frame holds at most; raises ``ArtifactCorrupt``."""
        with corruption_errors(self.database.path):
            return vocabulary.sizes(self._bytes, self._locate(rows))

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
        is_sound &= (frames[:, 0] <= frames[:, 1]) & (frames[:, 1] <= stops)
        frames[~is_sound] = -1
        return frames


def map_batches(database: Database, places: Places) -> Batches:
    """Return the batches of a finished store, of which nothing is read yet.

    Raises:
        ArtifactCorrupt: the file cannot be read, or is cut off.
    """
    try:
        with database.path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtifactCorrupt(f"{database.path} cannot be read ({error.strerror}): build it again with --force") from error
    if hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    if places.max(initial=0) > len(mapped):
        raise ArtifactCorrupt(f"{database.path} is cut off: it has {len(mapped):,} bytes, its batches need {places.max():,}")
    return Batches(database, np.frombuffer(mapped, dtype=np.uint8), places)


@contextmanager
def stored_batches(database: Database) -> Iterator[Batches]:
    """Give the batches of a database that is being written; all of them are read. Raises ``ArtifactCorrupt``."""
    with database.environment.begin(buffers=True) as transaction:  # keeps the values valid
        with corruption_errors(database.path):
            pairs = list(transaction.cursor(database.passages))
            first_rows = [ROW.unpack(key)[0] for key, _ in pairs]
        addresses = np.array([np.frombuffer(value, dtype=np.uint8).ctypes.data for _, value in pairs], dtype=np.int64)
        starts = addresses - addresses.min(initial=1 << 62)
        ends = starts + np.array([len(value) for _, value in pairs], dtype=np.int64)
        # One array over all values and the pages between them: LMDB maps the file as a whole.
        places = np.array([first_rows, starts, ends], dtype=np.int64).T
        if not pairs:
            yield Batches(database, np.empty(0, dtype=np.uint8), places)
        else:
            whole = (ctypes.c_uint8 * int(ends.max())).from_address(int(addresses.min()))
            yield Batches(database, np.ctypeslib.as_array(whole), places)


def count_passages(database: Database) -> int:
    """Return the number of passages in a database; raises ``ArtifactCorrupt``."""
    with corruption_errors(database.path), database.environment.begin(buffers=True) as transaction:
        cursor = transaction.cursor(database.passages)
        return int(ROW.unpack(cursor.key())[0]) + _n_frames(cursor.value()) if cursor.last() else 0


def _n_frames(batch: memoryview) -> int:
    return int(_OFFSET.unpack_from(batch)[0]) // _OFFSET.size - 1

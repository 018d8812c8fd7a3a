"""Inversion of passages while their store is being written, so that their text is read once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wikidx.base.errors import InputError, StagingCorrupt
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.passage import Passage
from wikidx.indexer.analysis import Analyzer

from .files import BLOCK_ROWS
from .inversion import Inverter

_THREADS = 2  # they keep up with a store's writer
_MOST_BLOCK_CHARACTERS = 128 << 20


class FollowingInverter:
    """Inverter of passages in row order; see ``corpora.store.Follower``. Finished blocks of an interrupted build are kept.

    The passages of a block are in memory until it is inverted. At a block with much text the follower stops, and ``inversion.invert`` does
    the rest.
    """

    def __init__(self, folder: Path, analyzer: Analyzer, most_block_characters: int = _MOST_BLOCK_CHARACTERS) -> None:
        """Read the finished blocks; delete them if they are corrupt.

        Args:
            folder: folder of the blocks.
            analyzer: the analyzer of their texts.
            most_block_characters: characters of a block from which on the follower stops.
        """
        self._most_block_characters = most_block_characters
        try:
            self._inverter = Inverter(folder, analyzer, min(_THREADS, n_threads()))
        except StagingCorrupt:
            shutil.rmtree(folder)
            self._inverter = Inverter(folder, analyzer, min(_THREADS, n_threads()))
        self._n_skipped = self._inverter.n_blocks * BLOCK_ROWS  # rows of finished blocks that are still to come
        self._has_stopped = False
        self._begin_block()

    def _begin_block(self) -> None:
        self._collected, self._n_rows, self._n_characters = list[Sequence[Passage]](), 0, 0

    def add(self, passages: Sequence[Passage]) -> None:
        """Take the next passages; wait while earlier blocks are inverted.

        Raises:
            OSError: a block cannot be written.
        """
        n_skipped = min(self._n_skipped, len(passages))
        self._n_skipped -= n_skipped
        rest = passages[n_skipped:]
        while rest and not self._has_stopped:
            part, rest = rest[: BLOCK_ROWS - self._n_rows], rest[BLOCK_ROWS - self._n_rows :]
            self._collected.append(part)
            self._n_rows += len(part)
            self._n_characters += sum(len(passage.title) + len(passage.text) for passage in part)
            if self._n_characters > self._most_block_characters:
                self._stop()
            elif self._n_rows == BLOCK_ROWS:
                self._submit()

    def finish(self) -> None:
        """Write the last block; raises as ``add`` does."""
        if self._collected:
            self._submit()
        with self._stopping_at_limits():
            self._inverter.finish()

    def close(self) -> None:
        """End the threads."""
        self._inverter.close()

    def _submit(self) -> None:
        with self._stopping_at_limits():
            self._inverter.submit(self._collected, self._n_characters)
        self._begin_block()

    def _stop(self) -> None:
        self._has_stopped = True
        self._begin_block()

    @contextmanager
    def _stopping_at_limits(self) -> Iterator[None]:
        """Stop where the analyzer fails, at terms that no index can hold, and where memory is short: the passages can still be stored."""
        try:
            yield
        except (InputError, MemoryError):
            self._stop()

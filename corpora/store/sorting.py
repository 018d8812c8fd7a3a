"""Sorts any number of (key, value) pairs of bytes in bounded memory: LMDB takes sorted pairs fastest and packs them tightest."""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

Pair = tuple[bytes, bytes]

_RUN_PAIRS = 1 << 17  # about 20 MB of Python objects
_CHUNK_PAIRS = 1 << 10


class ExternalSort:
    """Collects pairs and yields them sorted: full runs wait, sorted, in a temporary file without a name, which dies with the process."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".")
        self._runs: list[list[tuple[int, int]]] = []  # of each run: (offset, bytes) of its chunks
        self._pairs: list[Pair] = []

    def add(self, pairs: Iterable[Pair]) -> None:
        """Take some more pairs."""
        self._pairs.extend(pairs)
        if len(self._pairs) >= _RUN_PAIRS:
            self._write_run()

    def __iter__(self) -> Iterator[Pair]:
        """Yield all pairs by key, then value."""
        self._pairs.sort()
        return heapq.merge(*map(self._read_run, self._runs), self._pairs)

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def _write_run(self) -> None:
        self._pairs.sort()
        run = []
        for start in range(0, len(self._pairs), _CHUNK_PAIRS):
            data = marshal.dumps(self._pairs[start : start + _CHUNK_PAIRS])
            run.append((self._file.tell(), len(data)))
            self._file.write(data)
        self._runs.append(run)
        self._pairs = []

    def _read_run(self, run: list[tuple[int, int]]) -> Iterator[Pair]:
        for offset, n_bytes in run:
            self._file.seek(offset)
            yield from marshal.loads(self._file.read(n_bytes))

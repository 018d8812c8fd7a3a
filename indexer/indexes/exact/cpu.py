"""Exact search on a CPU, straight over mapped vectors: each thread takes blocks of rows, split into tiles that fit its caches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.store import Rows
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.machine.compiled import kernel
from wikidx.indexer.machine.threads import n_threads
from wikidx.indexer.page_checks import ReadableArray

from .best_keys import Candidates, Keys, Scored, best_hits, collect, no_candidates, no_thresholds, taken
from .products import ROWS, Ahead, panels_of, score_rows, widen

_TILE_ROWS = 48  # rows of a tile, a multiple of ROWS; two tiles and the panels fit into a core's own cache
_TILE_PANELS = 8
_BLOCK_ROWS = 2_064  # rows of a thread's unit of work, a multiple of _TILE_ROWS
_SMALL = 4_000_000  # multiplications below which a second thread costs more than it saves
_SPARE_PLACES = 64  # places for candidates beyond 2 k
_CANDIDATE_BYTES = 256 << 20
_MAX_QUERIES = 1_024


class _Block(NamedTuple):
    """A block of rows: float32, or the bits of float16, of shape (rows, dim), and its missing rows."""

    vectors: NDArray[Any]
    first_row: int
    missing: Rows


class _Work(NamedTuple):
    """Working memory of one thread: queries as panels, their candidates, and buffers for a tile of rows and for scores.

    ``tile`` is a read-only view of ``space``, like mapped rows, so that one kernel serves both array types.
    """

    panels: Vectors
    candidates: Candidates
    space: Vectors
    tile: Vectors
    scored: Scored


class CpuEngine:
    """Finds the best rows of vectors, float32 or float16 of shape (rows, dim); ``missing`` rows, ascending, are skipped.

    ``search`` is safe for several threads, and for processes forked from this one.
    """

    def __init__(self, vectors: ReadableArray, missing: Rows) -> None:
        self._vectors, self._n_rows = vectors, len(vectors)
        self._starts = range(0, self._n_rows, _BLOCK_ROWS)
        self._missing = np.split(missing, np.searchsorted(missing, self._starts[1:]))  # of each block

    def search(self, queries: Vectors, k: int) -> Hits:
        """Return the k best rows of each query, float32 of shape (Q, dim); k is at most the number of rows."""
        n_places = min(2 * k + _SPARE_PLACES, self._n_rows)
        n_workers = max(1, min(n_threads(), len(self._starts), _CANDIDATE_BYTES // (8 * n_places)))
        if self._n_rows * queries.size < _SMALL:
            n_workers = 1
        n_at_once = max(1, min(_MAX_QUERIES, _CANDIDATE_BYTES // (8 * n_places * n_workers)))
        parts = [self._search(queries[first : first + n_at_once], k, n_places, n_workers) for first in range(0, len(queries), n_at_once)]
        return Hits(np.concatenate([part.rows for part in parts]), np.concatenate([part.scores for part in parts]))

    def _search(self, queries: Vectors, k: int, n_places: int, n_workers: int) -> Hits:
        panels = panels_of(queries)
        thresholds = no_thresholds(len(queries), panels.shape[0] * panels.shape[2])
        blocks, turn = iter(zip(self._starts, self._missing, strict=True)), threading.Lock()

        def work() -> Keys:
            mine = _work(panels, no_candidates(len(queries), k, n_places, thresholds))
            while True:
                with turn:
                    turn_of = next(blocks, None)
                if turn_of is None:
                    return taken(mine.candidates)
                block = self._block(*turn_of)
                (_search_float32 if block.vectors.dtype == np.float32 else _search_float16)(block, mine)

        if n_workers == 1:
            return best_hits(work(), k)
        with ThreadPoolExecutor(n_workers) as threads:  # of this search alone: a permanent pool's threads would be missing after a fork
            found = [threads.submit(work) for _ in range(n_workers)]
        return best_hits(np.concatenate([keys.result() for keys in found], axis=1), k)

    def _block(self, start: int, missing: Rows) -> _Block:
        """Return the block of rows from ``start`` on, read-only, so that one kernel serves mapped and other arrays."""
        rows = np.ascontiguousarray(self._vectors[start : start + _BLOCK_ROWS])
        rows = rows.view(np.uint16 if rows.dtype == np.float16 else np.float32)
        rows.flags.writeable = False
        return _Block(rows, start, missing)


def _work(panels: Vectors, candidates: Candidates) -> _Work:
    _, dim, width = panels.shape
    space = np.zeros((_TILE_ROWS, dim), dtype=np.float32)
    tile = space.view()
    tile.flags.writeable = False
    return _Work(panels, candidates, space, tile, Scored(np.empty((ROWS, width), dtype=np.float32), np.empty(ROWS, dtype=np.uint16)))


@kernel
def _search_float32(block: _Block, work: _Work) -> None:
    for start in range(0, len(block.vectors), _TILE_ROWS):
        rows = block.vectors[start : start + _TILE_ROWS]
        n_rows = len(rows)
        if n_rows < _TILE_ROWS:
            work.space[:n_rows] = rows
            rows = work.tile
        _search_tile(rows, n_rows, start, block, work)


@kernel
def _search_float16(block: _Block, work: _Work) -> None:
    for start in range(0, len(block.vectors), _TILE_ROWS):
        half_bits = block.vectors[start : start + _TILE_ROWS]
        widen(half_bits, work.space)
        _search_tile(work.tile, len(half_bits), start, block, work)


@kernel
def _search_tile(rows: Vectors, n_rows: int, start: int, block: _Block, work: _Work) -> None:
    """Search the first ``n_rows`` of ``_TILE_ROWS`` rows of a block from ``start`` on, while the next ones are prefetched."""
    width, row_bytes = work.panels.shape[2], block.vectors.strides[0]
    address = np.int64(block.vectors.ctypes.data) + (start + _TILE_ROWS) * row_bytes
    for first in range(0, len(work.panels), _TILE_PANELS):
        panels = work.panels[first : first + _TILE_PANELS]
        if first == 0:
            step = ROWS * block.vectors.itemsize // len(panels)
        else:  # already prefetched
            address, step = np.int64(panels.ctypes.data), 0
        for row in range(0, n_rows, ROWS):
            for number in range(len(panels)):
                line = (first + number) * width
                score_rows(rows[row:], panels[number], work.candidates.thresholds[line : line + width], work.scored, Ahead(address, step))
                collect(work.scored, min(ROWS, n_rows - row), block.first_row + start + row, block.missing, line, work.candidates)
                address += step * len(panels[number])

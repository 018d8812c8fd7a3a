"""Search of all rows on a CPU, directly over mapped vectors.

Threads take blocks of rows; a block is split into tiles that fit a core's cache.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import ReadableArray
from wikidx.base.compiled import kernel
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.indexes.keys import Keys, best_hits, merge_hits
from wikidx.indexer.scope import NO_WORDS, Words, to_words
from wikidx.indexer.vectors.products import ROWS, Prefetch, ScoredRows, pack_panels, score_rows, widen, widen_codes

from .collecting import Candidates, collect, empty_candidates, finalize, initial_thresholds

_TILE_ROWS = 48  # a multiple of ROWS; two tiles and the panels fit into a core's own cache
_TILE_PANELS = 8
_BLOCK_ROWS = 2_064  # rows that a thread takes at a time; a multiple of _TILE_ROWS
_SMALL = 4_000_000  # number of multiplications below which a second thread costs more than it saves
_SPARE_SLOTS = 64  # slots for candidates beyond 2 k
_CANDIDATE_BYTES = 256 << 20
_GATHERED_ROWS = 16_384  # rows that are read one by one at a time
_MAX_QUERIES = 1_024


class _Block(NamedTuple):
    """A block of rows, and the bits of all rows that may be results; without bits, all may.

    ``vectors``, of shape (rows, dim), is float32, int8, or uint16 with the bits of float16.
    """

    vectors: NDArray[Any]
    first_row: int
    allowed: Words


class _WorkingMemory(NamedTuple):
    """Working memory of one thread: queries as panels, their candidates, and buffers for a tile of rows and for scores.

    ``tile`` is a read-only view of ``space``. Mapped rows are read-only too, so that numba compiles each kernel for one type.
    """

    panels: NDArray[Any]
    candidates: Candidates
    space: NDArray[Any]
    tile: NDArray[Any]
    scored: ScoredRows


class CpuEngine:
    """Search of vectors, float32, float16 or int8 of shape (rows, dim). The rows in ``missing``, which is ascending, are skipped.

    ``search`` is thread-safe, and also works in forked processes.
    """

    def __init__(self, vectors: ReadableArray, missing: Rows) -> None:
        self._vectors, self._n_rows = vectors, len(vectors)
        self._starts = range(0, self._n_rows, _BLOCK_ROWS)
        self._allowed = NO_WORDS
        if len(missing):
            mask = np.ones(self._n_rows, dtype=bool)
            mask[missing] = False
            self._allowed = to_words(mask)

    def search(self, queries: Vectors | NDArray[np.int32], k: int, scope: Words = NO_WORDS) -> Hits:
        """Return the k best rows of each query, of all or of those whose bits in ``scope`` are 1; k is at most the number of rows.

        The queries are float32 of shape (Q, dim). For int8 vectors, they are int16 in pairs: int32 of shape (Q, half of dim, rounded up).
        """
        n_slots = min(2 * k + _SPARE_SLOTS, self._n_rows)
        allowed = scope & self._allowed if len(scope) and len(self._allowed) else scope if len(scope) else self._allowed
        allowed.flags.writeable = False
        n_workers = max(1, min(n_threads(), len(self._starts), _CANDIDATE_BYTES // (8 * n_slots)))
        if self._n_rows * queries.size < _SMALL:
            n_workers = 1
        n_at_once = max(1, min(_MAX_QUERIES, _CANDIDATE_BYTES // (8 * n_slots * n_workers)))
        batches = (queries[first : first + n_at_once] for first in range(0, len(queries), n_at_once))
        parts = [self._search(batch, k, n_slots, n_workers, allowed) for batch in batches]
        return Hits(np.concatenate([part.rows for part in parts]), np.concatenate([part.scores for part in parts]))

    def _search(self, queries: Vectors | NDArray[np.int32], k: int, n_slots: int, n_workers: int, allowed: Words) -> Hits:
        panels = pack_panels(queries)
        thresholds = initial_thresholds(len(queries), panels.shape[0] * panels.shape[2])
        starts = iter(self._starts)

        def search_blocks() -> Keys:
            memory = _allocate(panels, empty_candidates(len(queries), k, n_slots, thresholds))
            for start in starts:  # of all threads: a step of a range's iterator is atomic
                if not len(allowed) or allowed[start // 64 : (start + _BLOCK_ROWS) // 64 + 1].any():
                    block = self._block(start, allowed)
                    _SEARCHES[block.vectors.dtype.name](block, memory)
            return finalize(memory.candidates)

        if n_workers == 1:
            return best_hits(search_blocks(), k)
        with ThreadPoolExecutor(n_workers) as threads:  # a new pool for each search: a permanent pool has no threads after a fork
            running = [threads.submit(search_blocks) for _ in range(n_workers)]
        return best_hits(np.concatenate([keys.result() for keys in running], axis=1), k)

    def _block(self, start: int, allowed: Words) -> _Block:
        """Return the block of rows from ``start`` on. It is read-only, as mapped arrays are, so that all blocks have one type."""
        rows = np.ascontiguousarray(self._vectors[start : start + _BLOCK_ROWS])
        rows = rows.view(np.uint16) if rows.dtype == np.float16 else rows.view()
        rows.flags.writeable = False
        return _Block(rows, start, allowed)


def search_few(vectors: ReadableArray, rows: Rows, queries: Vectors, k: int) -> Hits:
    """Return the k best of some rows, which ascend, for each float32 query; only these rows are read.

    Raises:
        ArtifactCorrupt: a vector is corrupt.
    """
    parts = []
    for start in range(0, len(rows), _GATHERED_ROWS):
        numbers = rows[start : start + _GATHERED_ROWS]
        hits = CpuEngine(vectors[numbers], rows[:0]).search(queries, min(k, len(numbers)))
        parts.append(Hits(np.where(hits.rows < 0, hits.rows, numbers[hits.rows]), hits.scores))
    return merge_hits(parts, len(queries), k)


def _allocate(panels: NDArray[Any], candidates: Candidates) -> _WorkingMemory:
    _, dim, width = panels.shape
    space = np.zeros((_TILE_ROWS, dim), dtype=panels.dtype)
    tile = space.view()
    tile.flags.writeable = False
    return _WorkingMemory(
        panels, candidates, space, tile, ScoredRows(np.empty((ROWS, width), dtype=np.float32), np.empty(ROWS, dtype=np.uint16))
    )


@kernel
def _search_float32(block: _Block, memory: _WorkingMemory) -> None:
    for start in range(0, len(block.vectors), _TILE_ROWS):
        rows = block.vectors[start : start + _TILE_ROWS]
        n_rows = len(rows)
        if n_rows < _TILE_ROWS:
            for row in range(n_rows):
                for i in range(rows.shape[1]):
                    memory.space[row, i] = rows[row, i]
            rows = memory.tile
        _search_tile(rows, n_rows, start, block, memory)


@kernel
def _search_float16(block: _Block, memory: _WorkingMemory) -> None:
    for start in range(0, len(block.vectors), _TILE_ROWS):
        half_bits = block.vectors[start : start + _TILE_ROWS]
        widen(half_bits, memory.space)
        _search_tile(memory.tile, len(half_bits), start, block, memory)


@kernel
def _search_int8(block: _Block, memory: _WorkingMemory) -> None:
    for start in range(0, len(block.vectors), _TILE_ROWS):
        codes = block.vectors[start : start + _TILE_ROWS]
        widen_codes(codes, memory.space)
        _search_tile(memory.tile, len(codes), start, block, memory)


_SEARCHES = {"float32": _search_float32, "uint16": _search_float16, "int8": _search_int8}


@kernel
def _search_tile(rows: NDArray[Any], n_rows: int, start: int, block: _Block, memory: _WorkingMemory) -> None:
    """Search a tile of a block: the first ``n_rows`` of ``rows``, which begin at row ``start`` of the block. Prefetch the next tile."""
    width, row_bytes = memory.panels.shape[2], block.vectors.strides[0]
    address = np.int64(block.vectors.ctypes.data) + (start + _TILE_ROWS) * row_bytes
    for first in range(0, len(memory.panels), _TILE_PANELS):
        panels = memory.panels[first : first + _TILE_PANELS]
        if first == 0:
            step = ROWS * row_bytes // (panels.shape[1] * len(panels))
        else:  # the next tile is already prefetched
            address, step = np.int64(panels.ctypes.data), 0
        for row in range(0, n_rows, ROWS):
            for number in range(len(panels)):
                line = (first + number) * width
                score_rows(
                    rows[row:], panels[number], memory.candidates.thresholds[line : line + width], memory.scored, Prefetch(address, step)
                )
                collect(memory.scored, min(ROWS, n_rows - row), block.first_row + start + row, block.allowed, line, memory.candidates)
                address += step * len(panels[number])

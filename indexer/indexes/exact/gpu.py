"""Exact search on GPUs. The rows are divided among the GPUs, and keep their dtype. Each tile takes a matrix product and a top-k.

float16 vectors are multiplied in float16, with float32 scores. For this, a float32 query is split into two float16 terms, which together
have the query's 22 leading bits. If the first terms represent all queries exactly, the second terms are omitted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from wikidx.corpora.store import Rows
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.machine.devices import choose_kernels
from wikidx.indexer.machine.failures import device_errors
from wikidx.indexer.machine.threads import equal_ranges
from wikidx.indexer.page_checks import ReadableArray

from .best_keys import Keys, best_hits
from .gpu_best import BLOCK, TopK

_MAX_QUERIES = 1_024
_MAX_KEYS = 4 << 20  # limit on the keys of all queries of a batch
_TILE_SCORES = 128 << 20
_MAX_PRODUCT = (1 << 31) - 1  # elements of a matrix: cuBLAS has failed beyond (pytorch#17897)
_FIRST_TILE_SCORES = 1 << 20  # scores of the first tile: without a threshold, all are examined individually
_GROWTH = 8  # growth factor of tiles: most scores of a tile are below the threshold only if enough rows precede the tile
_QUERY_EXPONENT = 13  # split queries are scaled to below 2^13: first terms fit into float16, second terms are above its smallest number
_LEAST_EXPONENT = -100
_COPIED_ROWS = 16_384  # rows copied to a device at a time


class TorchEngine:
    """Exact search over shards of a corpus, one on each device. Searches are serialised."""

    def __init__(self, shards: Sequence[DeviceShard]) -> None:
        self._shards = shards
        self._turn = threading.Lock()

    def search(self, queries: Vectors, k: int) -> Hits:
        """Return the k best rows of each query, float32 of shape (Q, dim); k is at most the number of rows.

        Raises:
            IdxError: a GPU has too little memory left, or has failed.
        """
        n_at_once = max(1, min(_MAX_QUERIES, _MAX_KEYS // k))
        batches = []
        with self._turn, ThreadPoolExecutor(len(self._shards)) as threads:
            for first in range(0, len(queries), n_at_once):
                running = [threads.submit(shard.search, queries[first : first + n_at_once], k) for shard in self._shards]
                batches.append(best_hits(np.concatenate([keys.result() for keys in running], axis=1), k))
        return Hits(np.concatenate([hits.rows for hits in batches]), np.concatenate([hits.scores for hits in batches]))


def load_shards(rows: ReadableArray, missing: Rows, devices: Sequence[str]) -> list[DeviceShard]:
    """Copy vectors, float32 or float16 of shape (rows, dim), to devices in equal shards.

    Args:
        rows: the vectors.
        missing: rows without a vector, ascending.
        devices: torch's names; one may occur more than once.

    Raises:
        ArtifactCorrupt: a vector is corrupt.
        IdxError: a device has too little memory, or has failed.
    """
    choose_kernels()
    dtype = torch.float16 if rows.dtype == np.float16 else torch.float32
    shards = []
    for device, rows_here in zip(devices, equal_ranges(len(rows), len(devices)), strict=True):
        if rows_here:
            with _gpu_errors(device):
                vectors = torch.empty((len(rows_here), rows.shape[1]), dtype=dtype, device=device)
                _copy_rows(rows, rows_here, vectors)
            low, high = np.searchsorted(missing, (rows_here.start, rows_here.stop))
            shards.append(DeviceShard(vectors, rows_here.start, missing[low:high] - rows_here.start))
    return shards


class DeviceShard:
    """Consecutive rows of a corpus on one device, from ``first_row`` on. Rows in ``missing``, counted from ``first_row``, are skipped."""

    def __init__(self, vectors: torch.Tensor, first_row: int, missing: Rows) -> None:
        self.vectors = vectors
        self._first_row, self._missing = first_row, missing
        self._device = vectors.device

    @torch.inference_mode()
    def search(self, queries: Vectors, k: int) -> Keys:
        """Return the k best rows of the shard for each query as keys, shape (Q, k); raises as ``TorchEngine.search`` does."""
        with _gpu_errors(str(self._device)):
            factors, scales = self.factors(queries)
            best = TopK(k, scales)
            for start, scores in self.tiles(factors, len(queries)):
                best.offer(scores, self._first_row + start)
                del scores  # before the next tile is computed

            return best.keys()

    def tiles(self, factors: torch.Tensor, n_queries: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row of each tile, counted in the shard, and the tile's scores, given the factors of the queries."""
        start, n_rows, most_rows = 0, _round_to_blocks(_FIRST_TILE_SCORES // n_queries), _MAX_PRODUCT // self.vectors.shape[1]
        while start < len(self.vectors):
            stop = min(start + min(n_rows, _round_to_blocks(most_rows)), len(self.vectors))
            yield start, self._scores(factors, n_queries, start, stop)
            start, n_rows = stop, min(n_rows * _GROWTH, _round_to_blocks(_TILE_SCORES // n_queries))

    def factors(self, queries: Vectors) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the factors of the matrix product, shape (Q or 2 Q, dim), and the scale of each query's scores, shape (Q,).

        With 2 Q factors, the first Q are the queries' first terms, and the others their second terms.
        """
        query_tensor = torch.tensor(queries, device=self._device)
        if self.vectors.dtype == torch.float32:
            return query_tensor, torch.ones_like(query_tensor[:, 0])
        exponents = torch.frexp(query_tensor.abs().amax(dim=1)).exponent.clamp(min=_LEAST_EXPONENT) - _QUERY_EXPONENT
        scaled = torch.ldexp(query_tensor, -exponents[:, None])
        first = scaled.half()
        second = (scaled - first.float()).half()
        return torch.cat([first, second]) if bool(second.any()) else first, torch.ldexp(torch.ones_like(query_tensor[:, 0]), exponents)

    def _scores(self, factors: torch.Tensor, n_queries: int, start: int, stop: int) -> torch.Tensor:
        """Return the unscaled scores of some rows, float32 (Q, rows padded to whole blocks); -inf for padding and missing rows."""
        scores = _product(factors, self.vectors[start:stop])
        if len(factors) > n_queries:
            scores = scores[:n_queries].add_(scores[n_queries:])
        low, high = np.searchsorted(self._missing, (start, stop))
        if low < high:
            scores[:, torch.tensor(self._missing[low:high] - start, device=self._device)] = -torch.inf
        n_more = -scores.shape[1] % BLOCK
        return torch.nn.functional.pad(scores, (0, n_more), value=-torch.inf) if n_more else scores


def _product(factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the inner products, float32, of shape (factors, rows)."""
    if rows.dtype == torch.float32:
        return factors @ rows.T
    if rows.device.type == "cpu":  # used in tests; on a CPU, a float32 product is fast and exact, a float16 product is not
        return factors.float() @ rows.float().T
    return torch.mm(factors, rows.T, out_dtype=torch.float32)


def _round_to_blocks(n_rows: int) -> int:
    return max(1, n_rows // BLOCK) * BLOCK


def _copy_rows(vectors: ReadableArray, rows: range, target: torch.Tensor) -> None:
    """Copy rows to a device's memory. The next rows are read during each transfer."""
    buffers = [torch.empty((_COPIED_ROWS, target.shape[1]), dtype=target.dtype, pin_memory=target.is_cuda) for _ in range(2)]
    copied: list[torch.cuda.Event | None] = [None, None]
    for number, start in enumerate(range(0, len(rows), _COPIED_ROWS)):
        buffer, event, rows_here = buffers[number % 2], copied[number % 2], rows[start : start + _COPIED_ROWS]
        if event is not None:
            event.synchronize()
        np.copyto(buffer.numpy()[: len(rows_here)], vectors[rows_here.start : rows_here.stop])
        target[start : start + len(rows_here)].copy_(buffer[: len(rows_here)], non_blocking=True)
        if target.is_cuda:
            copied[number % 2] = torch.cuda.current_stream(target.device).record_event()
    if target.is_cuda:
        torch.cuda.synchronize(target.device)


def _gpu_errors(device: str) -> contextlib.AbstractContextManager[None]:
    """Translate torch's exceptions for a device that fails or has too little memory."""
    advice = "end other programs there, or name more GPUs (--device cuda:0,1)"
    return device_errors(device, "exact search", advice, aftermath="; start again, or with --device cpu")

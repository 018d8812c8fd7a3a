"""Exact search on GPUs: rows are shared out evenly and lie in the GPUs' memory as on disk; one product for a tile of them, then its best.

float16 vectors are multiplied as they are, with float32 scores. A query of float32 is split into two of float16 that together have its 22
leading bits; the second is left out where all queries are float16 already.
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
from wikidx.indexer.machine.failures import device_errors
from wikidx.indexer.machine.threads import equal_ranges
from wikidx.indexer.page_checks import ReadableArray

from .best_keys import Keys, best_hits
from .gpu_best import BLOCK, Best

_MAX_QUERIES = 1_024
_MAX_KEYS = 4 << 20  # of all queries of a batch
_TILE_SCORES = 128 << 20
_FIRST_TILE_SCORES = 1 << 20  # all of which are looked at singly
_GROWTH = 8  # of tiles, since most scores of a tile are passed over only if the rows before it are not much fewer
_QUERY_EXPONENT = 13  # queries of two halves are scaled to just below 2^13: float16 holds them, and the second halves well above its least
_LEAST_EXPONENT = -100
_COPIED_ROWS = 16_384  # on their way to a device at a time


class TorchEngine:
    """Finds the best rows of parts of a corpus, each on a device of its own. Searches take turns."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._turn = threading.Lock()

    def search(self, queries: Vectors, k: int) -> Hits:
        """Return the k best rows of each query, float32 of shape (Q, dim); k is at most the number of rows.

        Raises:
            IdxError: a GPU has too little memory left, or has failed.
        """
        n_at_once = max(1, min(_MAX_QUERIES, _MAX_KEYS // k))
        found = []
        with self._turn, ThreadPoolExecutor(len(self._parts)) as threads:
            for first in range(0, len(queries), n_at_once):
                running = [threads.submit(part.search, queries[first : first + n_at_once], k) for part in self._parts]
                found.append(best_hits(np.concatenate([keys.result() for keys in running], axis=1), k))
        return Hits(np.concatenate([hits.rows for hits in found]), np.concatenate([hits.scores for hits in found]))


def load_parts(rows: ReadableArray, missing: Rows, devices: Sequence[str]) -> list[Part]:
    """Copy vectors, float32 or float16 of shape (rows, dim), to devices, as many to each.

    Args:
        rows: the vectors.
        missing: rows that have no vector, ascending.
        devices: torch's names; one may come more than once.

    Raises:
        ArtifactDamaged: a vector is damaged.
        IdxError: a device has too little memory, or has failed.
    """
    dtype = torch.float16 if rows.dtype == np.float16 else torch.float32
    parts = []
    for device, here in zip(devices, equal_ranges(len(rows), len(devices)), strict=True):
        if here:
            with _errors_of(device):
                vectors = torch.empty((len(here), rows.shape[1]), dtype=dtype, device=device)
                _copy(rows, here, vectors)
            low, high = np.searchsorted(missing, (here.start, here.stop))
            parts.append(Part(vectors, here.start, missing[low:high] - here.start))
    return parts


class Part:
    """Consecutive rows of a corpus on one device, from ``first_row`` on; ``missing`` ones, counted from there, are passed over."""

    def __init__(self, vectors: torch.Tensor, first_row: int, missing: Rows) -> None:
        self.vectors = vectors
        self._first_row, self._missing = first_row, missing
        self._device = vectors.device

    @torch.inference_mode()
    def search(self, queries: Vectors, k: int) -> Keys:
        """Return the k best of these rows for each query as keys, shape (Q, k); raises as ``TorchEngine.search`` does."""
        with _errors_of(str(self._device)):
            factors, scales = self.factors(queries)
            best = Best(k, scales)
            for start, scores in self.tiles(factors, len(queries)):
                best.offer(scores, self._first_row + start)
            return best.keys()

    def tiles(self, factors: torch.Tensor, n_queries: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield where each tile begins, and its scores as ``Best.offer`` wants them, for what ``factors`` returns."""
        start, n_rows = 0, _whole_blocks(_FIRST_TILE_SCORES // n_queries)
        while start < len(self.vectors):
            stop = min(start + n_rows, len(self.vectors))
            yield start, self._scores(factors, n_queries, start, stop)
            start, n_rows = stop, min(n_rows * _GROWTH, _whole_blocks(_TILE_SCORES // n_queries))

    def factors(self, queries: Vectors) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what rows are multiplied with, shape (Q or 2 Q, dim), and by what each query's scores are scaled then, shape (Q,)."""
        given = torch.tensor(queries, device=self._device)
        if self.vectors.dtype == torch.float32:
            return given, torch.ones_like(given[:, 0])
        exponents = torch.frexp(given.abs().amax(dim=1)).exponent.clamp(min=_LEAST_EXPONENT) - _QUERY_EXPONENT
        scaled = torch.ldexp(given, -exponents[:, None])
        first = scaled.half()
        second = (scaled - first.float()).half()
        return torch.cat([first, second]) if bool(second.any()) else first, torch.ldexp(torch.ones_like(given[:, 0]), exponents)

    def _scores(self, factors: torch.Tensor, n_queries: int, start: int, stop: int) -> torch.Tensor:
        """Return the scores of some rows before scaling, float32 (Q, whole blocks); -inf where there is no vector."""
        scores = _product(factors, self.vectors[start:stop])
        if len(factors) > n_queries:
            scores = scores[:n_queries].add_(scores[n_queries:])
        low, high = np.searchsorted(self._missing, (start, stop))
        if low < high:
            scores[:, torch.tensor(self._missing[low:high] - start, device=self._device)] = -torch.inf
        n_more = -scores.shape[1] % BLOCK
        return torch.nn.functional.pad(scores, (0, n_more), value=-torch.inf) if n_more else scores


def _product(factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the inner products, float32 (factors, rows)."""
    if rows.dtype == torch.float32:
        return factors @ rows.T
    if rows.device.type == "cpu":  # where tests run; a float32 product is what its float16 one is not: fast, and float32
        return factors.float() @ rows.float().T
    return torch.mm(factors, rows.T, out_dtype=torch.float32)


def _whole_blocks(n_rows: int) -> int:
    return max(1, n_rows // BLOCK) * BLOCK


def _copy(vectors: ReadableArray, rows: range, target: torch.Tensor) -> None:
    """Fill a device's memory with some rows, some being read while those before them are on their way."""
    buffers = [torch.empty((_COPIED_ROWS, target.shape[1]), dtype=target.dtype, pin_memory=target.is_cuda) for _ in range(2)]
    copied: list[torch.cuda.Event | None] = [None, None]
    for number, start in enumerate(range(0, len(rows), _COPIED_ROWS)):
        buffer, event, here = buffers[number % 2], copied[number % 2], rows[start : start + _COPIED_ROWS]
        if event is not None:
            event.synchronize()
        np.copyto(buffer.numpy()[: len(here)], vectors[here.start : here.stop])
        target[start : start + len(here)].copy_(buffer[: len(here)], non_blocking=True)
        if target.is_cuda:
            copied[number % 2] = torch.cuda.current_stream(target.device).record_event()
    if target.is_cuda:
        torch.cuda.synchronize(target.device)


def _errors_of(device: str) -> contextlib.AbstractContextManager[None]:
    """Translate what torch raises when a device has too little memory or has failed."""
    advice = "end other programs there, or name more GPUs (--device cuda:0,1)"
    return device_errors(device, "exact search", advice, aftermath="; start again, or with --device cpu")

"""Exact search on GPUs. The rows are divided among the GPUs, and keep their dtype. Each tile takes a matrix product and a top-k.

float16 vectors are multiplied in float16, with float32 scores. For this, a float32 query is split into two float16 terms, which together
have the query's 22 leading bits. The first terms rank the rows; the best rows, more than asked for, are scored again in float32. A score
by the first term errs by at most a known bound: if the worst of these rows could still be among the k best, more could, and the query is
ranked again by both terms. If the first terms represent all queries exactly, as those for float32 vectors do, this is not needed. The rows
are scored again all the same: cuBLAS adds up in another order for another number of rows or queries, and equal vectors should have equal
scores.

The best scores of a tile are listed by a kernel of Triton, or by torch where Triton is missing (``gpu_best``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from wikidx.base.artifacts.checked_files import ReadableArray
from wikidx.base.machine.devices import choose_kernels
from wikidx.base.machine.failures import device_errors
from wikidx.base.machine.threads import equal_ranges
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.indexes.keys import Keys, best_hits
from wikidx.indexer.scope import NO_WORDS, Scope, Words
from wikidx.indexer.vectors.corpus_vectors import missing_within

from .gpu_best import BLOCK, GROWTH, TopK, decode_keys, encode_keys, find_select, select_by_torch

_MAX_QUERIES = 1_024
_MAX_KEYS = 4 << 20  # of all queries that are searched at a time; with the size of a tile, it limits the memory (``memory.WORK_BYTES``)
_TILE_SCORES = 128 << 20
_MAX_PRODUCT = (1 << 31) - 1  # elements of a matrix: cuBLAS has failed beyond (pytorch#17897)
_QUERY_EXPONENT = 13  # split queries are scaled to below 2^13: first terms fit into float16, second terms are above its smallest number
_LEAST_EXPONENT = -100
_COPIED_ROWS = 16_384  # rows copied to a device at a time
_SPARE_CANDIDATES = 64  # rows that are scored again, besides 2 k
_MAX_RESCORED = 64 << 20  # components of rows that are scored again at a time
_PRODUCT_ERROR = (
    2.0**-22
)  # relative error of a sum of float32 products, per component; a tensor core cuts bits off, at twice the error of rounding


class TorchEngine:
    """Exact search over shards of a corpus, one on each device. Searches are serialised."""

    def __init__(self, shards: Sequence[DeviceShard]) -> None:
        self._shards = shards
        self._turn = threading.Lock()

    def search(self, queries: Vectors, k: int, scope: Words = NO_WORDS) -> Hits:
        """Return the k best rows of each query, float32 of shape (Q, dim), of all or of those whose bits in ``scope`` are 1.

        Raises:
            IdxError: a GPU has too little memory left, or has failed.
        """
        n_at_once = max(1, min(_MAX_QUERIES, _MAX_KEYS // _n_candidates(k)))
        batches = []
        with self._turn, ThreadPoolExecutor(len(self._shards)) as threads:
            for first in range(0, len(queries), n_at_once):
                running = [threads.submit(shard.search, queries[first : first + n_at_once], k, scope) for shard in self._shards]
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
            shards.append(DeviceShard(vectors, rows_here.start, missing_within(rows_here, missing)))
    return shards


class SplitQueries(NamedTuple):
    """Queries as float16 terms; for float32 vectors, the queries themselves are the first terms.

    Attributes:
        scaled: queries, divided by ``scales``, float32 (Q, dim).
        first: first terms, float16 or float32 (Q, dim).
        second: second terms, float16 (Q, dim); None if all are zero.
        scales: scale of each query's scores, a power of two, float32 (Q,).
    """

    scaled: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor | None
    scales: torch.Tensor


class DeviceShard:
    """Consecutive rows of a corpus on one device, from ``first_row`` on. Rows in ``missing``, counted from ``first_row``, are skipped.

    Attributes:
        vectors: the vectors of the rows.
        select: function that lists scores above a threshold.
    """

    def __init__(self, vectors: torch.Tensor, first_row: int, missing: Rows) -> None:
        self.vectors = vectors
        self._first_row, self._missing = first_row, missing
        self._device = vectors.device
        self._missing_there = torch.from_numpy(missing).to(self._device)  # a copy during a search would wait for the product under way
        self.select = find_select(str(self._device)) if vectors.is_cuda else select_by_torch
        norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32).max() for rows in torch.split(vectors, _COPIED_ROWS)]
        self._largest_norm = torch.stack(norms).max()

    @torch.inference_mode()
    def search(self, queries: Vectors, k: int, scope: Words = NO_WORDS) -> Keys:
        """Return the k best rows of the shard for each query as keys, shape (Q, k); see ``TorchEngine.search``."""
        with _gpu_errors(str(self._device)):
            terms, outside = self.split_queries(queries), self._outside(scope) if len(scope) else None
            keys, is_exact = self._rank_and_rescore(terms, k, outside)
            if terms.second is not None and len(again := (~is_exact).nonzero().flatten()):
                keys[again] = self._rank([terms.first[again], terms.second[again]], terms.scales[again], k, outside)
            found: Keys = keys.cpu().numpy()
            return found

    def _outside(self, scope: Words) -> torch.Tensor:
        """Return whether each row of the shard is outside of a scope, bool (rows,)."""
        rows = range(self._first_row, self._first_row + len(self.vectors))
        return torch.from_numpy(~Scope(scope, 64 * len(scope)).mask(rows)).to(self._device)

    def split_queries(self, queries: Vectors) -> SplitQueries:
        """Split float32 queries, shape (Q, dim), into the factors of the matrix products."""
        query_tensor = torch.tensor(queries, device=self._device)
        ones = torch.ones_like(query_tensor[:, 0])
        if self.vectors.dtype == torch.float32:
            return SplitQueries(query_tensor, query_tensor, None, ones)
        exponents = torch.frexp(query_tensor.abs().amax(dim=1)).exponent.clamp(min=_LEAST_EXPONENT) - _QUERY_EXPONENT
        scaled = torch.ldexp(query_tensor, -exponents[:, None])
        first = scaled.half()
        second = (scaled - first.float()).half()
        return SplitQueries(scaled, first, second if bool(second.any()) else None, torch.ldexp(ones, exponents))

    def _rank_and_rescore(self, terms: SplitQueries, k: int, outside: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best rows of each query as keys, and whether these are known to be the best, shapes (Q, k) and (Q,).

        A score by the first term differs from the exact score by at most ``error``. The exact scores of at least k rows reach the k-th best
        less ``error``. A row whose score by the first term is below the k-th best less twice ``error`` is therefore not among the k best.
        """
        keys = self._rank([terms.first], terms.scales, _n_candidates(k), outside).sort(dim=1, descending=True).values
        rows, scores = decode_keys(keys)
        scores = scores / terms.scales[:, None]
        rounded = (terms.scaled - terms.first.float()).norm(dim=1)
        error = (rounded + self.vectors.shape[1] * _PRODUCT_ERROR * terms.scaled.norm(dim=1)) * self._largest_norm
        is_all = (scores[:, -1] == -torch.inf) | (len(self.vectors) <= keys.shape[1])
        is_exact = is_all | (scores[:, -1] < scores[:, k - 1] - 2 * error)
        rescored = self._rescore(terms.scaled, (rows - self._first_row).clamp(0, len(self.vectors) - 1)) * terms.scales[:, None]
        rescored = torch.where(scores == -torch.inf, -torch.inf, rescored)
        return encode_keys(rescored, rows).topk(k, dim=1, sorted=False).values, is_exact

    def _rescore(self, scaled: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the inner products of each query with its rows, float32, of shape (Q, rows)."""
        n_at_once = max(1, _MAX_RESCORED // (rows.shape[1] * scaled.shape[1]))
        parts = zip(torch.split(scaled, n_at_once), torch.split(rows, n_at_once), strict=True)
        return torch.cat([(self.vectors[numbers].float() * queries[:, None]).sum(dim=2) for queries, numbers in parts])

    def _rank(  # noqa: PLR0913
        self, terms: Sequence[torch.Tensor], scales: torch.Tensor, k: int, outside: torch.Tensor | None, growth: int = GROWTH
    ) -> torch.Tensor:
        """Return the k best rows for each query as keys, shape (Q, k), by the sums of the scores of the terms, each (Q, dim).

        Queries for which more rows were found than there is room for are ranked again by themselves, with merges as often as needed.
        """
        best = TopK(k, scales, self.select, growth)
        for start, scores in self.tiles(terms, best):
            if outside is not None:
                scores.masked_fill_(outside[start : start + scores.shape[1]], -torch.inf)
            best.offer(scores, self._first_row + start)
            del scores  # before the next tile is computed
        keys, lost = best.keys()
        if len(lost):
            keys[lost] = self._rank([term[lost] for term in terms], scales[lost], k, outside, growth=1)
        return keys

    def tiles(self, terms: Sequence[torch.Tensor], best: TopK) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row of each tile, counted in the shard, and the tile's scores, given terms of the queries, each (Q, dim).

        A tile ends where ``best`` merges, to which each must be offered before the next.
        """
        start, most_rows = 0, self.tile_rows(len(terms[0]))
        while start < len(self.vectors):
            stop = min(start + most_rows, start + best.n_until_merge, len(self.vectors))
            yield start, self.scores(terms, start, stop)
            start = stop

    def tile_rows(self, n_queries: int) -> int:
        """Return the largest number of rows of a tile."""
        return max(1, min(_MAX_PRODUCT // self.vectors.shape[1], _TILE_SCORES // n_queries) // BLOCK) * BLOCK

    def scores(self, terms: Sequence[torch.Tensor], start: int, stop: int) -> torch.Tensor:
        """Return the unscaled scores of some rows, float32 (Q, rows); -inf for missing rows."""
        scores = _product(terms, self.vectors[start:stop])
        low, high = np.searchsorted(self._missing, (start, stop))
        return scores.index_fill_(1, self._missing_there[low:high] - start, -torch.inf) if low < high else scores


def _product(terms: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """Return the sums of the terms' inner products with rows, float32, of shape (Q, rows), without a second matrix of this size."""
    if (
        rows.dtype == torch.float32 or rows.device.type == "cpu"
    ):  # in tests; on a CPU, a float32 product is fast and exact, a float16 one is not
        scores = terms[0].float() @ rows.float().T
        return scores if len(terms) == 1 else scores.addmm_(terms[1].float(), rows.float().T)
    scores = torch.mm(terms[0], rows.T, out_dtype=torch.float32)
    return scores if len(terms) == 1 else torch.addmm(scores, terms[1], rows.T, out_dtype=torch.float32, out=scores)


def _n_candidates(k: int) -> int:
    return 2 * k + _SPARE_CANDIDATES


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

"""Exact top-k over tiles of scores that never waits for the host: a kernel of Triton lists the scores above a threshold.

The matrix product of a tile occupies a whole GPU, so nothing runs beside it. A host that waits for the number of scores found in a tile,
before it starts the next product, leaves the GPU idle. Here each query has room for a fixed number of found rows. They are merged into the
best so far at rows known beforehand, each time after several times as many rows: the more rows there were, the fewer of the following ones
are found. If the room has not sufficed for a query, ``StreamedTopK`` says so at the end, and the search starts again another way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from wikidx.indexer.indexes.keys import NO_KEY

from .gpu_best import BLOCK, decode_keys, encode_keys

_LEAST_ROOM = 4_096  # found rows per query between two merges
_LEAST_ROOMS = 1 << 20  # and of all queries: the first merge of few queries comes later, since a merge takes as long for one as for many
_ROOM = 6  # and the least room as a multiple of k; in random order, _GROWTH - 1 times k are found
_GROWTH = 4  # factor by which the number of rows grows from merge to merge


class Found(NamedTuple):
    """Rows found since the last merge, in any order.

    Attributes:
        keys: keys of unscaled scores, int64 (Q, room).
        counts: number of rows found, int32 (Q,); those beyond the room are lost.
    """

    keys: torch.Tensor
    counts: torch.Tensor


Select = Callable[[torch.Tensor, torch.Tensor, Found, int], None]
"""Function that adds the scores above a threshold to those found: scores (Q, rows), thresholds (Q,), ``Found``, the first row."""


class StreamedTopK:
    """The k best rows of Q queries as keys (``keys``). Rows must be offered in ascending order, in tiles of ``streamed_ranges``."""

    def __init__(self, k: int, scales: torch.Tensor, select: Select) -> None:
        """Start without results; ``k`` and ``scales`` are as in ``TopK``."""
        self._k, self._scales, self._select = k, scales, select
        n_queries, n_places, device = len(scales), room(k, len(scales)), scales.device
        self._best = torch.full((n_queries, k), NO_KEY, dtype=torch.int64, device=device)
        self._thresholds = torch.full_like(scales, -torch.inf)
        keys = torch.empty((n_queries, n_places), dtype=torch.int64, device=device)
        self._found = Found(keys, torch.zeros(n_queries, dtype=torch.int32, device=device))
        self._most_found = torch.zeros_like(self._found.counts)
        self._places = torch.arange(n_places, device=device)
        self._n_offered, self._merged_at = 0, n_places

    def offer(self, scores: torch.Tensor, first_row: int) -> None:
        """Offer the unscaled scores of rows from ``first_row`` on, float32 (Q, rows). NaN and -inf never become results."""
        self._select(scores, self._thresholds, self._found, first_row)
        self._n_offered += scores.shape[1]
        if self._n_offered >= self._merged_at:
            self._merge()
            self._merged_at *= _GROWTH

    def keys(self) -> torch.Tensor | None:
        """Return the k best of each query, int64 (Q, k), unordered; None if more rows were found for a query than there is room for."""
        self._merge()
        if int(self._most_found.max()) > len(self._places):
            return None
        rows, scores = decode_keys(self._best)
        return encode_keys(scores * self._scales[:, None], rows)

    def _merge(self) -> None:
        """Merge the rows found into the k best so far, and raise the thresholds. Nothing is copied to the host."""
        keys, counts = self._found
        used = torch.where(self._places < counts[:, None], keys, NO_KEY)
        self._best = torch.cat([self._best, used], dim=1).topk(self._k, dim=1, sorted=False).values
        self._thresholds = decode_keys(self._best.amin(dim=1))[1]
        self._most_found = torch.maximum(self._most_found, counts)
        counts.zero_()


def room(k: int, n_queries: int) -> int:
    """Return the number of rows that can be found per query between two merges: whole blocks."""
    return -(-max(_LEAST_ROOM, _ROOM * k, _LEAST_ROOMS // n_queries) // BLOCK) * BLOCK


def streamed_ranges(n_rows: int, first_merge: int, most_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each tile and the row after its last one.

    Tiles have at most ``most_rows``, and end where merges are: after ``first_merge`` rows, then after ``_GROWTH`` times as many each time.
    """
    start, merged_at = 0, first_merge
    while start < n_rows:
        stop = min(start + most_rows, merged_at, n_rows)
        yield start, stop
        start = stop
        if stop == merged_at:
            merged_at *= _GROWTH


@functools.cache
def find_select(device: str) -> Select | None:
    """Return the kernel for a GPU, compiled; None if Triton is not installed, or cannot compile here: it needs a C compiler."""
    try:
        from .gpu_select import select

        for n_columns in (3 * BLOCK, 3 * BLOCK + 1):  # rows of scores that are aligned, and others: each a kernel of its own
            _try_select(select, device, n_columns)
    except Exception:  # noqa: BLE001 - whatever the compiler raises: there is another way to search
        return None
    return select


def _try_select(select: Select, device: str, n_columns: int) -> None:
    """Compile the kernel, and raise an exception if it does not find what it should."""
    scores = torch.full((2, n_columns), -5.0, device=device)
    scores[0, 5], scores[1, -1], scores[1, 0] = 2.0, -0.5, torch.nan
    expected = encode_keys(scores.new_tensor([2.0, -0.5]), torch.tensor([15, 9 + n_columns], device=device))
    found = Found(torch.zeros((2, BLOCK), dtype=torch.int64, device=device), torch.zeros(2, dtype=torch.int32, device=device))
    select(scores, scores.new_tensor([1.0, -1.0]), found, 10)
    if found.counts.tolist() != [1, 1] or not torch.equal(found.keys[:, 0], expected):
        raise RuntimeError("Triton's kernel does not find the scores above a threshold")

"""Exact top-k over tiles of scores on a GPU, which never waits for the host: a kernel of Triton lists the scores above a threshold.

The matrix product of a tile occupies a whole GPU, so nothing runs beside it. A host that waits for the number of scores found in a tile,
before it starts the next product, leaves the GPU idle. Here each query has room for a fixed number of found rows. They are merged into the
best so far at rows known beforehand, each time after several times as many rows: the more rows there were, the fewer of the following ones
are found. If the room has not sufficed for a query, ``TopK`` says so at the end, and that query is searched again with merges more often.
Where Triton is missing, torch lists the scores, and the host does wait for each tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from wikidx.indexer.indexes.keys import LARGEST_ROW, NO_KEY

BLOCK = 128  # scores per block, whose maximum torch compares with the threshold first
GROWTH = 4  # factor by which the number of rows grows from merge to merge

_MOST_EXAMINED = 4 << 20  # scores that torch compares one by one at a time
_LEAST_ROOM = 4_096  # found rows per query between two merges
_LEAST_ROOMS = 1 << 20  # and of all queries: the first merge of few queries comes later, since a merge takes as long for one as for many
_ROOM = 6  # and the least room as a multiple of k; in random order, GROWTH - 1 times k are found
_ALL_BUT_SIGN = 0x7FFFFFFF


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


class TopK:
    """The k best rows of Q queries as keys (``keys``).

    Rows must be offered in ascending order, in tiles of at most ``n_until_merge`` rows. A later row with the k-th best score so far is then
    not among the best.

    Attributes:
        n_until_merge: rows that can be offered until the next merge.
    """

    def __init__(self, k: int, scales: torch.Tensor, select: Select, growth: int = GROWTH) -> None:
        """Start without results.

        Args:
            k: number of results.
            scales: factor by which each query's offered scores are multiplied, a power of two, float32 (Q,).
            select: see ``Select``.
            growth: factor by which the number of rows grows from merge to merge; with 1, no rows are lost.
        """
        self._k, self._scales, self._select, self._growth = k, scales, select, growth
        n_queries, n_places, device = len(scales), room(k, len(scales)), scales.device
        self._best = torch.full((n_queries, k), NO_KEY, dtype=torch.int64, device=device)
        self._thresholds = torch.full_like(scales, -torch.inf)  # thresholds of unscaled scores
        keys = torch.empty((n_queries, n_places), dtype=torch.int64, device=device)
        self._found = Found(keys, torch.zeros(n_queries, dtype=torch.int32, device=device))
        self._most_found = torch.zeros_like(self._found.counts)
        self._places = torch.arange(n_places, device=device)
        self._n_offered, self.n_until_merge = 0, n_places

    def offer(self, scores: torch.Tensor, first_row: int) -> None:
        """Offer the unscaled scores of rows from ``first_row`` on, float32 (Q, rows). NaN and -inf never become results."""
        self._select(scores, self._thresholds, self._found, first_row)
        self._n_offered += scores.shape[1]
        self.n_until_merge -= scores.shape[1]
        if not self.n_until_merge:
            self._merge()
            self.n_until_merge = max(len(self._places), (self._growth - 1) * self._n_offered)

    def keys(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best of each query, int64 (Q, k), unordered, and the queries for which more rows were found than have room."""
        self._merge()
        rows, scores = decode_keys(self._best)
        return encode_keys(scores * self._scales[:, None], rows), (self._most_found > len(self._places)).nonzero().flatten()

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


def select_by_torch(scores: torch.Tensor, thresholds: torch.Tensor, found: Found, first_row: int) -> None:
    """Add the scores above the thresholds to those found; see ``Select``."""
    if n_more := -scores.shape[1] % BLOCK:  # of the last tile only: padding copies a tile
        scores = torch.nn.functional.pad(scores, (0, n_more), value=-torch.inf)
    blocks = scores.view(len(scores), -1, BLOCK)
    lines, numbers = (blocks.amax(dim=2) <= thresholds[:, None]).logical_not_().nonzero(as_tuple=True)  # keeps blocks with NaN
    if len(lines) * BLOCK > _MOST_EXAMINED and blocks.shape[1] > 1:
        half = blocks.shape[1] // 2 * BLOCK
        select_by_torch(scores[:, :half], thresholds, found, first_row)
        select_by_torch(scores[:, half:], thresholds, found, first_row + half)
        return
    values = blocks[lines, numbers]
    selected, within = (values > thresholds[lines, None]).nonzero(as_tuple=True)
    lines, rows = lines[selected], first_row + numbers[selected] * BLOCK + within
    n_found = torch.bincount(lines, minlength=len(scores))
    places = found.counts[lines] + torch.arange(len(lines), device=scores.device) - (n_found.cumsum(0) - n_found)[lines]
    has_room = places < found.keys.shape[1]
    found.keys[lines[has_room], places[has_room]] = encode_keys(values[selected, within], rows)[has_room]
    found.counts.add_(n_found)


@functools.cache
def find_select(device: str) -> Select:
    """Return the kernel for a GPU, compiled; torch's if Triton is not installed, or cannot compile here: it needs a C compiler."""
    try:
        from .gpu_select import select

        for n_columns in (3 * BLOCK, 3 * BLOCK + 1):  # rows of scores that are aligned, and others: each a kernel of its own
            _try_select(select, device, n_columns)
    except Exception:  # noqa: BLE001 - whatever the compiler raises: there is another way to search
        return select_by_torch
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


def encode_keys(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the keys of scores, float32, and rows, int64, both of one shape; ``NO_KEY`` for -inf and NaN."""
    bits = (scores + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = (bits ^ ((bits >> 31) & _ALL_BUT_SIGN)).long()
    return torch.where(scores > -torch.inf, (ordered << 32) | (LARGEST_ROW - rows), NO_KEY)


def decode_keys(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows and scores that keys encode; -inf for ``NO_KEY``, with ``LARGEST_ROW``."""
    ordered = (keys >> 32).int()
    scores = (ordered ^ ((ordered >> 31) & _ALL_BUT_SIGN)).view(torch.float32)
    return LARGEST_ROW - (keys & LARGEST_ROW), torch.where(keys == NO_KEY, -torch.inf, scores)

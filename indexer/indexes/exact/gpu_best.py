"""Exact top-k over tiles of scores, with torch. Tiles are read once; only scores above a rising threshold become keys."""

from __future__ import annotations

import torch

from wikidx.indexer.indexes.keys import LARGEST_ROW, NO_KEY

from .memory import MOST_EXAMINED

BLOCK = 128  # scores per block; they are examined individually only if their maximum exceeds the threshold

_MOST_AT_ONCE = MOST_EXAMINED
_LEAST_PENDING = 64  # mean number of pending keys per query before a merge
_ALL_BUT_SIGN = 0x7FFFFFFF


class TopK:
    """The k best rows of Q queries as keys (``keys``).

    Rows must be offered in ascending order. A later row with the k-th best score so far is then not among the best.
    """

    def __init__(self, k: int, scales: torch.Tensor) -> None:
        """Start without results.

        Args:
            k: number of results.
            scales: factor by which each query's offered scores are multiplied, a power of two, float32 (Q,).
        """
        self._k, self._scales = k, scales
        self._best = torch.full((len(scales), k), NO_KEY, dtype=torch.int64, device=scales.device)
        self._thresholds = torch.full_like(scales, -torch.inf)  # thresholds of unscaled scores
        self._pending: list[tuple[torch.Tensor, torch.Tensor]] = []  # lines and keys
        self._n_pending = 0

    def keys(self) -> torch.Tensor:
        """Return the k best of each query, int64 (Q, k), unordered."""
        self._merge_pending()
        return self._best

    def offer(self, scores: torch.Tensor, first_row: int) -> None:
        """Offer the scores of rows from ``first_row`` on, float32 (Q, rows), in whole blocks. NaN and -inf never become results."""
        blocks = scores.view(len(scores), -1, BLOCK)
        lines, numbers = (blocks.amax(dim=2) <= self._thresholds[:, None]).logical_not_().nonzero(as_tuple=True)  # keeps blocks with NaN
        if len(lines) * BLOCK > _MOST_AT_ONCE and blocks.shape[1] > 1:
            half = blocks.shape[1] // 2 * BLOCK
            self.offer(scores[:, :half], first_row)
            self.offer(scores[:, half:], first_row + half)
            return
        block_scores = blocks[lines, numbers]
        selected, within = (block_scores > self._thresholds[lines, None]).nonzero(as_tuple=True)
        if not len(selected):
            return
        lines, rows = lines[selected], first_row + numbers[selected] * BLOCK + within
        self._pending.append((lines, encode_keys(block_scores[selected, within] * self._scales[lines], rows)))
        self._n_pending += len(lines)
        if self._n_pending > len(scores) * max(self._k, _LEAST_PENDING):
            self._merge_pending()

    def _merge_pending(self) -> None:
        """Merge the pending keys into the k best so far, and raise the thresholds."""
        n_queries = len(self._best)
        all_lines = torch.arange(n_queries, device=self._best.device).repeat_interleave(self._k)
        lines = torch.cat([all_lines, *(lines for lines, _ in self._pending)])
        keys, order = torch.cat([self._best.flatten(), *(keys for _, keys in self._pending)]).sort(descending=True)
        lines, stable = lines[order].sort(stable=True)
        counts = torch.bincount(lines, minlength=n_queries)
        ranks = torch.arange(len(lines), device=lines.device) - (counts.cumsum(0) - counts)[lines]
        is_reusable = ranks < self._k
        self._best = keys[stable][is_reusable].view(n_queries, self._k)
        self._thresholds = decode_keys(self._best[:, -1])[1] / self._scales
        self._pending, self._n_pending = [], 0


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

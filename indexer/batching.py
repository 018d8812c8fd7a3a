"""Which texts go through the model together: the rows of a shard in windows, the texts of a window in batches of like length.

Both depend on nothing but the shard: a build that goes on after a kill makes the same batches, and so the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

WINDOW_ROWS = 4096  # whose texts are sorted together: enough of every length that little of a batch is padding
PIECE_ROWS = 1024  # of a window, what one process tokenises at a time


def pieces(rows: range) -> Iterator[range]:
    """Yield the consecutive parts of a shard's rows that are tokenised at a time; a window is some of them, whole."""
    for window in _parts(rows, WINDOW_ROWS):
        yield from _parts(window, PIECE_ROWS)


def ends_window(piece: range, rows: range) -> bool:
    """Return whether a piece is the last of its window of a shard's rows."""
    return piece.stop == rows.stop or (piece.stop - rows.start) % WINDOW_ROWS == 0


def pieces_ahead(shard_rows: int) -> int:
    """Return how many pieces behind a window may be tokenised: into the next shard, no further, because others may want to make those."""
    return max(1, (shard_rows - WINDOW_ROWS) // PIECE_ROWS)


def _parts(rows: range, n_rows: int) -> Iterator[range]:
    for first in range(rows.start, rows.stop, n_rows):
        yield range(first, min(first + n_rows, rows.stop))


def batches(lengths: NDArray[np.int64], budget: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the texts of each batch, longest first, so that too large a budget shows at once.

    Args:
        lengths: tokens of each text, shape (n,).
        budget: tokens of a batch, padding included; a text that is longer than that is a batch of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        n_texts = max(1, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + n_texts]
        start += n_texts

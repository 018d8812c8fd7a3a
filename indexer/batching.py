"""Which texts go through the model together: the rows of a shard in windows, the texts of a window in batches of like length.

Both depend on nothing but the shard: a build that goes on after a kill makes the same batches, and so the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

WINDOW_ROWS = 4096  # what one process tokenises at a time; enough texts of every length that little of a batch is padding


def windows(rows: range) -> Iterator[range]:
    """Yield the consecutive parts of a shard's rows whose passages are tokenised and sorted together."""
    for first in range(rows.start, rows.stop, WINDOW_ROWS):
        yield range(first, min(first + WINDOW_ROWS, rows.stop))


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

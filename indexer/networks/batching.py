"""Batches for the model: texts of similar length from one range of rows.

The batches of a range depend only on its texts and on the token budget. A resumed build therefore computes the same vectors bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

CHUNK_ROWS = 1024  # rows of a range that one process tokenises at a time


def tokenizing_chunks(rows: range) -> Iterator[range]:
    """Yield the consecutive chunks of a range that are tokenised together."""
    for first in range(rows.start, rows.stop, CHUNK_ROWS):
        yield range(first, min(first + CHUNK_ROWS, rows.stop))


def batches(lengths: NDArray[np.int64], budget: int, most_texts: int = sys.maxsize) -> Iterator[NDArray[np.int64]]:
    """Yield the text numbers of each batch, longest texts first, so that a budget too large for the memory fails in the first batch.

    Args:
        lengths: tokens of each text, shape (n,).
        budget: maximum tokens of a batch, padding included; a longer text is a batch by itself.
        most_texts: maximum number of texts of a batch.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        n_texts = max(1, min(most_texts, budget // max(1, int(lengths[order[start]]))))
        yield order[start : start + n_texts]
        start += n_texts

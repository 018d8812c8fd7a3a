"""What ranges of rows found -> what the whole index would have found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexer.base import NO_ROW, Hits
from indexer.indexes.best_keys import LARGEST_ROW, NO_KEY, Keys, best_hits

_ALL_BUT_SIGN = 0x7FFFFFFF
_MINUS_ZERO = np.iinfo(np.int32).min


def merged(parts: Sequence[Hits], n_queries: int, k: int) -> Hits:
    """Return the k best of several ranges' hits for each query, by score, then row.

    Args:
        parts: of ranges that have no row in common, each of shape (Q, anything).
        n_queries: Q.
        k: results.
    """
    keys = np.concatenate([np.empty((n_queries, 0), dtype=np.int64), *map(_keys, parts)], axis=1)
    return best_hits(keys, k)


def _keys(hits: Hits) -> Keys:
    """Return what ``best_keys`` orders by for each hit."""
    bits = np.ascontiguousarray(hits.scores).view(np.int32)
    ordered: NDArray[np.int32] = np.where(bits == _MINUS_ZERO, np.int32(0), bits ^ ((bits >> 31) & _ALL_BUT_SIGN))
    return np.where(hits.rows == NO_ROW, NO_KEY, (ordered.astype(np.int64) << 32) | (LARGEST_ROW - hits.rows))

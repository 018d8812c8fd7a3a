"""What ranges of rows found -> what the whole index would have found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexer.base import Hits
from indexer.indexes.best_keys import best_hits, keys_of


def merged(parts: Sequence[Hits], n_queries: int, k: int) -> Hits:
    """Return the k best of several ranges' hits for each query, by score, then row.

    Args:
        parts: of ranges that have no row in common, each of shape (Q, anything).
        n_queries: Q.
        k: results.
    """
    keys = np.concatenate([np.empty((n_queries, 0), dtype=np.int64), *map(keys_of, parts)], axis=1)
    return best_hits(keys, k)

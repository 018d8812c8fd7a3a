"""Several ranked lists -> one: fusing retrievers, merging a group's queries, dropping duplicates. The checked front of ``kernels``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.store import TextKeys
from indexer.base import NO_ROW, Hits

from . import kernels

_RULES = {"max": kernels.MAX, "rrf": kernels.RRF}


def combine(lists: Hits, targets: Sequence[Sequence[int]], rule: str) -> Hits:
    """Combine ranked lists; a row that stands in several lists of a target comes out once.

    Args:
        lists: the lists, one a line.
        targets: for each list that comes out, the numbers of those that go into it.
        rule: "max": a row's best score; "rrf": the sum of 1 / (60 + rank).

    Returns:
        One line for each target, best first, ties by ascending row; as many places as the longest could need.

    Raises:
        ValueError: there is no such rule, or a number is not a list's.
    """
    if rule not in _RULES:
        raise ValueError(f"unknown rule '{rule}': known are {', '.join(_RULES)}")
    members = np.array([number for target in targets for number in target], dtype=np.int64)
    if members.size and not (members.min() >= 0 and members.max() < len(lists.rows)):
        raise ValueError(f"lists {members.min()} to {members.max()} are asked for, there are {len(lists.rows)}")
    starts = np.cumsum([0, *map(len, targets)], dtype=np.int64)
    rows, scores = kernels.combine(np.ascontiguousarray(lists.rows), np.ascontiguousarray(lists.scores), members, starts, _RULES[rule])
    return Hits(rows, scores)


def cut(hits: Hits, k: int, text_key: TextKeys | None = None) -> Hits:
    """Keep the first k places of each line; with ``text_key``, indexed by row, only the first of rows with equal keys."""
    if text_key is None:
        return Hits(hits.rows[:, :k], hits.scores[:, :k])
    rows = np.full((len(hits.rows), k), NO_ROW, dtype=np.int64)
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    for line in range(len(rows)):
        n = kernels.keep_first(hits.rows[line], text_key, k, rows[line])
        scores[line, :n] = hits.scores[line][np.isin(hits.rows[line], rows[line, :n])]
    return Hits(rows, scores)

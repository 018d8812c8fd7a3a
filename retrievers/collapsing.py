"""Collapsing of ranked passages to documents: each document appears once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .fusion import compact
from .kernels import Lists

FirstRows = NDArray[np.uint32]
"""First row of the document of each row; see ``PassageStore.first_rows``."""


def collapse(lists: Lists, firsts: FirstRows, k: int, *, is_summed: bool) -> Lists:
    """Return the k best documents of each list, as their best passages, ties by ascending row, without gaps between the lists.

    Args:
        lists: the lists, best first.
        firsts: the documents of the rows.
        k: number of documents.
        is_summed: whether a document's score is the sum of those of its passages, added in float64; otherwise it is that of the best.
    """
    kept = [_collapse(rows, scores, firsts[rows], k, is_summed=is_summed) for rows, scores in _each(lists)]
    sizes = np.array([len(rows) for rows, _ in kept], dtype=np.int64)
    ends = np.cumsum(sizes)
    return Lists(np.concatenate([rows for rows, _ in kept]), np.concatenate([scores for _, scores in kept]), ends - sizes, ends)


def cut_at_documents(lists: Lists, firsts: FirstRows, k: int, least: int) -> Lists:
    """Return the beginning of each list that has k documents and ``least`` passages, or all of a list that has not."""
    sizes = [max(least, _n_needed(firsts[rows], k) or len(rows)) for rows, _ in _each(lists)]
    return compact(lists._replace(ends=np.minimum(lists.ends, lists.starts + np.array(sizes, dtype=np.int64))))


def have_documents(lists: Lists, firsts: FirstRows, k: int, depth: int) -> bool:
    """Return whether each list of a search for ``depth`` passages has k documents, or is at its end."""
    return all(len(rows) < depth or _n_needed(firsts[rows], k) > 0 for rows, _ in _each(lists))


def _each(lists: Lists) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    for start, end in zip(lists.starts.tolist(), lists.ends.tolist(), strict=True):
        yield lists.rows[start:end], lists.scores[start:end]


def _n_needed(documents: FirstRows, k: int) -> int:
    """Return how many of the first rows have k documents; 0 if all of them have fewer."""
    places = np.sort(np.unique(documents, return_index=True)[1])
    return int(places[k - 1]) + 1 if len(places) >= k else 0


def _collapse(
    rows: NDArray[np.int64], scores: NDArray[np.float32], documents: FirstRows, k: int, *, is_summed: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    _, best, numbers = np.unique(documents, return_index=True, return_inverse=True)
    values = np.bincount(numbers, scores, len(best)).astype(np.float32) if is_summed else scores[best]
    order = np.lexsort((rows[best], -values))[:k]
    return rows[best][order], values[order]

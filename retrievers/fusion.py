"""Combination of ranked lists: retrievers are fused, the queries of a group merged, and duplicates dropped.

This module prepares the inputs of ``kernels``, and checks the results of searches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import interpreted
from wikidx.base.errors import IdxError
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.store import TextKeys
from wikidx.indexer.base import Hits

from . import kernels
from .kernels import Lists, Targets

_RULES = {"max": kernels.MAX, "sum": kernels.SUM, "rrf": kernels.RRF, "interleave": kernels.INTERLEAVE}
_ENTRIES_PER_TASK = 500_000  # about 10 ms of work; less is not worth a thread
_MAX_ROWS = 1 << 32
_ALL_TEXTS: TextKeys = np.empty(0, dtype=np.uint64)
# Read-only like a store's keys, because numba compiles a kernel again for a writable array.
_ALL_TEXTS.flags.writeable = False


class Fusion(NamedTuple):
    """Rule that fuses the lists of several searches for one query into one list.

    Attributes:
        rule: a rule of ``merge``, or one of the following, which add a row's scores times the factors. "weighted": a row missing from a
            list has the list's lowest score there, or 0 if the list is empty (as in Pyserini's ``HybridSearcher``). "minmax": each list is
            first scaled from its lowest score, which becomes 0, to its highest, which becomes 1; a missing row has 0. "zscore": each list
            is first shifted to mean 0 and scaled to standard deviation 1; a missing row has the list's lowest value. Equal scores of a
            whole list become 0 in both.
        factors: factor of each search.
        normalize: for "weighted": first scale each list's lowest score to -1/2 and its highest to 1/2; a missing row has -1/2. If all
            scores of a list are equal, they become 0, and a row missing from that list has 0.
        rank_constant: for "rrf": the constant that is added to ranks.
    """

    rule: str
    factors: tuple[float, ...]
    normalize: bool = False
    rank_constant: float = 60.0  # Cormack, Clarke and Büttcher, SIGIR 2009


def to_lists(hits: Hits, n_rows: int = _MAX_ROWS) -> Lists:
    """Return the results of a search as a list for each query; ``n_rows`` is the number of rows of the corpus.

    Raises:
        IdxError: a score is not finite, or a row is out of range.
    """
    rows, scores = np.ascontiguousarray(hits.rows), np.ascontiguousarray(hits.scores)
    counts = _count_results(rows, scores)
    if rows.size and rows.max() >= n_rows:
        raise IdxError(f"a search gave row {rows.max()}, there are {n_rows}: its index belongs to other passages")
    starts = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
    return Lists(rows.reshape(-1), scores.reshape(-1), starts, starts + counts)


def _count_results(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the number of results of each query; both inputs have shape (Q, k), and a list ends before a row of -1 or a score of -inf.

    Raises:
        IdxError: a score is not finite.
    """
    counts = np.full(len(rows), rows.shape[1], dtype=np.int64)
    is_finite = np.isfinite(scores)
    if is_finite.all() and (rows >= 0).all():  # most searches
        return counts
    has_ended = (rows < 0) | (scores == -np.inf)
    counts[:] = np.where(has_ended.any(axis=1), has_ended.argmax(axis=1), counts)
    is_wrong = (~is_finite & (np.arange(rows.shape[1]) < counts[:, None])).any(axis=1)
    if is_wrong.any():
        raise IdxError(f"a search gave query {int(np.argmax(is_wrong))} a score that is not a finite number")
    return counts


def make_targets(groups: Sequence[Sequence[int]]) -> Targets:
    """Return targets that merge the lists of each group, given by their numbers, without scaling."""
    members = np.fromiter(itertools.chain.from_iterable(groups), dtype=np.int64)
    starts = np.cumsum([0, *map(len, groups)], dtype=np.int64)
    return Targets(members, starts, np.ones(len(members)), np.zeros(len(members)), np.zeros(len(groups)))


def merge(  # noqa: PLR0913
    lists: Lists, targets: Targets, rule: str, *, k: int | None = None, text_key: TextKeys | None = None, rank_constant: float = 60.0
) -> Lists:
    """Merge the lists of each target; a row in several lists appears once.

    Args:
        lists: the lists.
        targets: the lists of each target; see ``make_targets``.
        rule: "max": a row's best score; "sum": the sum of its scores; "rrf": the sum of 1 / (rank_constant + rank);
            "interleave": 1 / (best rank).
        k: maximum number of rows for each target, at least 1; None: all.
        text_key: key of each row's text; of rows with equal keys, only the best is returned. None: all rows are returned.
        rank_constant: for "rrf".

    Returns:
        One list for each target, best first, ties by ascending row, without gaps between the lists.
    """
    offsets = np.concatenate([[0], np.cumsum((lists.ends - lists.starts)[targets.members])])[targets.starts]  # starts if all rows are kept
    sizes = np.diff(offsets) if k is None else np.minimum(np.diff(offsets), k)
    ends = np.cumsum(sizes, dtype=np.int64)
    out = Lists(np.empty(sizes.sum(), np.int64), np.empty(sizes.sum(), np.float32), ends - sizes, ends)
    keys = _ALL_TEXTS if text_key is None else np.asarray(text_key)

    def combine(span: slice) -> None:
        starts = targets.starts[span.start : span.stop + 1]
        subset = targets._replace(starts=starts, bases=targets.bases[span])
        n_entries, own = np.diff(offsets[span.start : span.stop + 1]), out._replace(starts=out.starts[span], ends=out.ends[span])
        with interpreted(int(n_entries.sum())):
            constant = float(rank_constant) if rule == "rrf" else 0.0
            kernels.combine(lists, subset, int(n_entries.max(initial=1)), _RULES[rule], constant, keys, own)

    ranges = _split_targets(offsets)
    if len(ranges) == 1:
        combine(ranges[0])
    else:
        with ThreadPoolExecutor(len(ranges)) as pool:
            list(pool.map(combine, ranges))  # raises a thread's exception
    return compact(out)


def fuse(lists: Lists, fusion: Fusion) -> Lists:
    """Fuse the results of several searches, query by query.

    Args:
        lists: the lists of all searches, one after the other, of as many as ``fusion`` has factors.
        fusion: the rule.

    Returns:
        One list for each query, best first, ties by ascending row, without gaps between the lists.
    """
    n_searches, n_lists = len(fusion.factors), len(lists.starts)
    n_queries = n_lists // n_searches
    members = np.arange(n_lists, dtype=np.int64).reshape(n_searches, n_queries).T.ravel()
    starts = np.arange(n_queries + 1, dtype=np.int64) * n_searches
    factors = np.tile(np.array(fusion.factors, dtype=np.float64), n_queries)
    if fusion.rule in _RULES:
        targets = Targets(members, starts, factors, np.zeros(n_lists), np.zeros(n_queries))
        return merge(lists, targets, fusion.rule, rank_constant=fusion.rank_constant)
    scale = _compute_scale(lists, "centred" if fusion.normalize else fusion.rule)
    bases = (factors * scale.missing[members]).reshape(n_queries, n_searches).sum(axis=1)
    return merge(lists, Targets(members, starts, factors * scale.factors[members], scale.lowest[members], bases), "sum")


class _Scale(NamedTuple):
    """Scale of each list: a row in the list has ``factors * (score - lowest) + missing``, all other rows have ``missing``."""

    factors: NDArray[np.float64]
    lowest: NDArray[np.float64]
    missing: NDArray[np.float64]


def _compute_scale(lists: Lists, rule: str) -> _Scale:
    lowest, highest = np.zeros((2, len(lists.starts)))
    filled = lists.ends > lists.starts
    lowest[filled], highest[filled] = lists.scores[lists.ends[filled] - 1], lists.scores[lists.starts[filled]]
    if rule == "weighted":
        return _Scale(np.ones(len(lowest)), lowest, lowest)
    means, deviations = _compute_moments(lists) if rule == "zscore" else (lowest, highest - lowest)
    factors = np.divide(1, deviations, out=np.zeros_like(deviations), where=highest > lowest)
    if rule == "centred":
        return _Scale(factors, lowest, np.where(filled & (highest == lowest), 0, -0.5))
    return _Scale(factors, lowest, factors * (lowest - means))


def _compute_moments(lists: Lists) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation of the scores of each list; 0 for an empty list."""
    lists, n_lists = compact(lists), len(lists.starts)
    sizes = np.maximum(lists.ends - lists.starts, 1)
    numbers = np.repeat(np.arange(n_lists), lists.ends - lists.starts)
    means = np.bincount(numbers, lists.scores, n_lists) / sizes
    return means, np.sqrt(np.bincount(numbers, (lists.scores - means[numbers]) ** 2, n_lists) / sizes)


def concatenate(lists: Sequence[Lists]) -> Lists:
    """Return all lists in one ``Lists``, in order."""
    if len(lists) == 1:
        return lists[0]
    shifts = np.cumsum([0, *(len(each.rows) for each in lists)]).tolist()
    starts = np.concatenate([each.starts + shift for each, shift in zip(lists, shifts, strict=False)])
    ends = np.concatenate([each.ends + shift for each, shift in zip(lists, shifts, strict=False)])
    return Lists(np.concatenate([each.rows for each in lists]), np.concatenate([each.scores for each in lists]), starts, ends)


def compact(lists: Lists) -> Lists:
    """Return the lists without gaps between them."""
    return lists if (lists.ends - lists.starts).sum() == len(lists.rows) else _copy(lists)


def select(lists: Lists, members: NDArray[np.int64], k: int) -> Lists:
    """Return the k best entries of each of the lists ``members``, without gaps between them; as in ``merge``, a score of -0 becomes 0."""
    starts = lists.starts[members]
    selected = _copy(lists._replace(starts=starts, ends=np.minimum(lists.ends[members], starts + k)))
    return selected._replace(scores=selected.scores + np.float32(0))


def _copy(lists: Lists) -> Lists:
    """Return a copy of the lists without gaps between them; they may overlap."""
    sizes = lists.ends - lists.starts
    ends = np.cumsum(sizes)
    indices = np.arange(sizes.sum()) + np.repeat(lists.starts - (ends - sizes), sizes)
    return Lists(lists.rows[indices], lists.scores[indices], ends - sizes, ends)


def _split_targets(offsets: NDArray[np.int64]) -> list[slice]:
    """Split the targets into ranges for threads, with about equal numbers of entries.

    ``offsets`` has the number of entries before each target, and the number of all entries.
    """
    n_targets = len(offsets) - 1
    n_ranges = int(max(1, min(n_threads(), n_targets, offsets[-1] // _ENTRIES_PER_TASK)))
    bounds = [0, *np.searchsorted(offsets, offsets[-1] * np.arange(1, n_ranges) // n_ranges).tolist(), n_targets]
    return [slice(first, last) for first, last in itertools.pairwise(bounds)]

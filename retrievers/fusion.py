"""Several ranked lists -> one: fusing retrievers, merging a group's queries, dropping duplicates. Validates the inputs of ``kernels``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import IdxError
from wikidx.corpora.store import TextKeys
from wikidx.indexer.base import Hits
from wikidx.indexer.machine.threads import n_threads

from . import kernels
from .kernels import Lists, Targets

_RULES = {"max": kernels.MAX, "sum": kernels.SUM, "rrf": kernels.RRF, "interleave": kernels.INTERLEAVE}
_PLACES_PER_TASK = 500_000  # 10 ms: less is not worth a thread
_MAX_ROWS = 1 << 32
_ALL_TEXTS: TextKeys = np.empty(0, dtype=np.uint64)
_ALL_TEXTS.flags.writeable = False  # like a store's keys: another array type would compile the kernels again


class Fusion(NamedTuple):
    """Rule that fuses the lists of several searches for one query into one.

    Attributes:
        rule: "weighted", or one of ``merge``'s. "weighted" adds the scores times the factors; a row that a list lacks has the list's lowest
            score there, 0 if the list is empty (as in Pyserini's ``HybridSearcher``).
        factors: factor of each search's values.
        normalize: with "weighted": scores are first scaled to between -1/2 (a list's lowest) and 1/2 (its highest), or 0 if they are equal;
            the missing score is -1/2 then, or 0.
    """

    rule: str
    factors: tuple[float, ...]
    normalize: bool = False


def as_lists(stages: Sequence[Hits], n_rows: int = _MAX_ROWS) -> Lists:
    """Return the results of several searches for the same Q queries as lists: search s has list ``s * Q + q`` for query q.

    Args:
        stages: results of each search.
        n_rows: number of rows of the corpus.

    Raises:
        IdxError: a score is not finite, or a row is out of range.
    """
    return concatenated([_as_lists(stage, n_rows) for stage in stages])


def _as_lists(hits: Hits, n_rows: int) -> Lists:
    rows, scores = np.ascontiguousarray(hits.rows), np.ascontiguousarray(hits.scores)
    counts = kernels.found_places(rows, scores)
    if counts.size and counts.min() < 0:
        raise IdxError(f"a search gave query {int(np.argmin(counts))} a score that is not a finite number")
    if rows.size and rows.max() >= n_rows:
        raise IdxError(f"a search gave row {rows.max()}, there are {n_rows}: its index belongs to other passages")
    starts = np.arange(len(rows), dtype=np.int64) * rows.shape[1]
    return Lists(rows.reshape(-1), scores.reshape(-1), starts, starts + counts)


def targets_of(groups: Sequence[Sequence[int]]) -> Targets:
    """Return targets that combine the lists with these numbers, unscaled."""
    members = np.fromiter(itertools.chain.from_iterable(groups), dtype=np.int64)
    starts = np.cumsum([0, *map(len, groups)], dtype=np.int64)
    return Targets(members, starts, np.ones(len(members)), np.zeros(len(members)), np.zeros(len(groups)))


def merge(lists: Lists, targets: Targets, rule: str, *, k: int | None = None, text_key: TextKeys | None = None) -> Lists:
    """Combine the lists of each target; a row in several of them appears once.

    Args:
        lists: the lists.
        targets: lists to combine; see ``targets_of``.
        rule: "max": a row's best score; "sum" of its scores; "rrf": the sum of 1 / (60 + rank); "interleave": 1 / (best rank).
        k: maximum number of rows of each target; None: all.
        text_key: by row; of rows with equal keys only the best is returned.

    Returns:
        One list for each target, best first, ties by ascending row, consecutive and without gaps.

    Raises:
        ValueError: there is no such rule, a number is not a list's, or k < 1.
    """
    if rule not in _RULES:
        raise ValueError(f"unknown rule '{rule}': known are {', '.join(_RULES)}")
    if k is not None and k < 1:
        raise ValueError(f"k is {k}: it must be at least 1")
    members = targets.members
    if members.size and not (members.min() >= 0 and members.max() < len(lists.starts)):
        raise ValueError(f"lists {members.min()} to {members.max()} are asked for, there are {len(lists.starts)}")
    places = np.concatenate([[0], np.cumsum((lists.ends - lists.starts)[members])])[targets.starts]  # where targets begin, if all are kept
    sizes = np.diff(places) if k is None else np.minimum(np.diff(places), k)
    ends = np.cumsum(sizes, dtype=np.int64)
    out = Lists(np.empty(sizes.sum(), np.int64), np.empty(sizes.sum(), np.float32), ends - sizes, ends)
    keys = _ALL_TEXTS if text_key is None else np.asarray(text_key)

    def work(part: slice) -> None:
        starts = targets.starts[part.start : part.stop + 1]
        mine = targets._replace(starts=starts, bases=targets.bases[part])
        kernels.combine(lists, mine, _RULES[rule], keys, out._replace(starts=out.starts[part], ends=out.ends[part]))

    parts = _parts(places)
    if len(parts) == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(work, parts))  # raises a thread's exception
    return without_gaps(out)


def fuse(lists: Lists, fusion: Fusion) -> Lists:
    """Fuse the results of several searches, query by query.

    Args:
        lists: as ``as_lists`` returns them, those of one search for each factor.
        fusion: the rule.

    Returns:
        One list for each query, best first, ties by ascending row, consecutive and without gaps.
    """
    n_searches, n_lists = len(fusion.factors), len(lists.starts)
    n_queries = n_lists // n_searches
    members = np.arange(n_lists, dtype=np.int64).reshape(n_searches, n_queries).T.ravel()
    starts = np.arange(n_queries + 1, dtype=np.int64) * n_searches
    factors = np.tile(np.array(fusion.factors, dtype=np.float64), n_queries)
    if fusion.rule != "weighted":
        return merge(lists, Targets(members, starts, factors, np.zeros(n_lists), np.zeros(n_queries)), fusion.rule)
    scale = _scale(lists, normalize=fusion.normalize)
    bases = (factors * scale.missing[members]).reshape(n_queries, n_searches).sum(axis=1)
    return merge(lists, Targets(members, starts, factors * scale.factors[members], scale.lowest[members], bases), "sum")


class _Scale(NamedTuple):
    """Weight of each list: a row in it counts ``factors * (score - lowest) + missing``, any other row ``missing``."""

    factors: NDArray[np.float64]
    lowest: NDArray[np.float64]
    missing: NDArray[np.float64]


def _scale(lists: Lists, *, normalize: bool) -> _Scale:
    lowest, highest = np.zeros((2, len(lists.starts)))
    filled = lists.ends > lists.starts
    lowest[filled], highest[filled] = lists.scores[lists.ends[filled] - 1], lists.scores[lists.starts[filled]]
    if not normalize:
        return _Scale(np.ones(len(lowest)), lowest, lowest)
    spans = highest - lowest
    factors = np.divide(1, spans, out=np.zeros_like(spans), where=spans > 0)
    return _Scale(factors, lowest, np.where(filled & (spans == 0), 0, -0.5))


def concatenated(parts: Sequence[Lists]) -> Lists:
    """Return the lists of all parts in order."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(len(part.rows) for part in parts)]).tolist()
    starts = np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=False)])
    ends = np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=False)])
    return Lists(np.concatenate([part.rows for part in parts]), np.concatenate([part.scores for part in parts]), starts, ends)


def without_gaps(lists: Lists) -> Lists:
    """Return the lists consecutively."""
    sizes = lists.ends - lists.starts
    ends = np.cumsum(sizes)
    if sizes.sum() == len(lists.rows):
        return lists
    places = np.arange(sizes.sum()) + np.repeat(lists.starts - (ends - sizes), sizes)
    return Lists(lists.rows[places], lists.scores[places], ends - sizes, ends)


def _parts(places: NDArray[np.int64]) -> list[slice]:
    """Return ranges of targets with about equally many places each, for the threads; ``places``: start of each target, and the end."""
    n_targets = len(places) - 1
    n_parts = int(max(1, min(n_threads(), n_targets, places[-1] // _PLACES_PER_TASK)))
    bounds = [0, *np.searchsorted(places, places[-1] * np.arange(1, n_parts) // n_parts).tolist(), n_targets]
    return [slice(first, last) for first, last in itertools.pairwise(bounds)]

"""Reranking of candidates: by the retrievers' scores for the primary query, or by a cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Scores

from .base import Reranker, Retriever
from .fusion import Fusion, concatenated, fuse, without_gaps
from .kernels import Lists


def by_root(candidates: Lists, roots: Sequence[str], retrievers: Sequence[Retriever], fusion: Fusion) -> Lists:
    """Rerank each group's candidates by its primary query.

    Each retriever ranks the candidates that it can retrieve with the primary query, and these rankings are fused by the rule of the
    search. Candidates that no retriever can retrieve with it stay, with score 0, or the missing scores of a weighted fusion.

    Args:
        candidates: a list for each group, without gaps.
        roots: the primary query of each group.
        retrievers: the retrievers.
        fusion: rule that fuses their lists.

    Raises:
        IdxError: a score is not finite.
        InputError: a retriever cannot score given rows.
    """
    groups = _groups(candidates)
    order = np.lexsort((candidates.rows, groups))
    rows, groups = candidates.rows[order], groups[order]
    of_group = [rows[start:end] for start, end in zip(candidates.starts.tolist(), candidates.ends.tolist(), strict=True)]
    stages = [_ranked(rows, np.concatenate(retriever.rescore(roots, of_group)), groups, len(roots)) for retriever in retrievers]
    everybody = Lists(rows, np.zeros(len(rows), dtype=np.float32), candidates.starts, candidates.ends)
    return fuse(concatenated([*stages, everybody]), fusion._replace(factors=(*fusion.factors, 0.0)))


def by_cross_encoder(candidates: Lists, roots: Sequence[str], passages: Mapping[int, Passage], reranker: Reranker) -> Lists:
    """Rerank each group's candidates by a cross-encoder's scores for its primary query; equal pairs of query and row are scored once.

    Args:
        candidates: a list for each group, without gaps.
        roots: the primary query of each group.
        passages: those of all candidates, by row.
        reranker: the cross-encoder.

    Raises:
        IdxError: a score is not finite.
    """
    groups = _groups(candidates)
    numbers = {root: number for number, root in enumerate(dict.fromkeys(roots))}
    root_numbers = np.array([numbers[root] for root in roots], dtype=np.int64)[groups]
    _, first, places = np.unique(np.stack([root_numbers, candidates.rows]), axis=1, return_index=True, return_inverse=True)
    queries = [roots[group] for group in groups[first].tolist()]
    scores = reranker.score(queries, [passages[row] for row in candidates.rows[first].tolist()])
    return _ranked(candidates.rows, scores[places], groups, len(roots))


def first_places(lists: Lists, k: int) -> Lists:
    """Return the k best of each list, without gaps."""
    return without_gaps(lists._replace(ends=np.minimum(lists.ends, lists.starts + k)))


def _groups(candidates: Lists) -> NDArray[np.int64]:
    """Return the group of each row."""
    return np.repeat(np.arange(len(candidates.starts)), candidates.ends - candidates.starts)


def _ranked(rows: Rows, scores: Scores, groups: NDArray[np.int64], n_groups: int) -> Lists:
    """Return a list for each group, best first, ties by ascending row; rows with -inf are left out."""
    found = np.flatnonzero(scores != -np.inf)
    if not np.isfinite(scores[found]).all():
        raise IdxError(f"row {rows[found][~np.isfinite(scores[found])][0]} was given a score that is not a finite number")
    order = found[np.lexsort((rows[found], -scores[found], groups[found]))]
    sizes = np.bincount(groups[found], minlength=n_groups)
    ends = np.cumsum(sizes)
    return Lists(rows[order], scores[order], ends - sizes, ends)

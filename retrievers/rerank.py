"""Reranking of candidates by the retrievers' scores for the primary query, or by a cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import IdxError
from wikidx.corpora.passage import Passage, Rows
from wikidx.indexer.base import Scores

from .base import Reranker, Retriever
from .fusion import Fusion, compact, concatenate, fuse
from .kernels import Lists
from .vector_queries import check_texts


def rerank_by_primary(candidates: Lists, queries: Sequence[str], retrievers: Sequence[Retriever], fusion: Fusion) -> Lists:
    """Rerank each group's candidates by its primary query.

    Each retriever scores the candidates for the primary query, and ranks those that its search could return. ``fusion`` fuses these
    rankings. Candidates in no ranking are kept: "weighted" scores them as missing from each list (see ``Fusion``), other rules as 0.

    Args:
        candidates: a list for each group, without gaps between the lists.
        queries: the primary query of each group.
        retrievers: the retrievers.
        fusion: the fusion rule of the search.

    Raises:
        IdxError: a score is not finite.
        InputError: the vectors that a retriever needs to score given rows are missing.
    """
    groups = _groups(candidates)
    order = np.lexsort((candidates.rows, groups))
    rows, groups = candidates.rows[order], groups[order]
    of_group = [rows[start:end] for start, end in zip(candidates.starts.tolist(), candidates.ends.tolist(), strict=True)]
    results = [_rank(rows, np.concatenate(retriever.rescore(queries, of_group)), groups, len(queries)) for retriever in retrievers]
    all_rows = Lists(rows, np.zeros(len(rows), dtype=np.float32), candidates.starts, candidates.ends)
    return fuse(concatenate([*results, all_rows]), fusion._replace(factors=(*fusion.factors, 0.0)))


def rerank_by_cross_encoder(candidates: Lists, queries: Sequence[str], passages: Mapping[int, Passage], reranker: Reranker) -> Lists:
    """Rerank each group's candidates by a cross-encoder's scores for the group's primary query.

    Each distinct pair of query and row is scored once.

    Args:
        candidates: a list for each group, without gaps between the lists.
        queries: the primary query of each group.
        passages: passages of all candidates, by row.
        reranker: the cross-encoder.

    Raises:
        IdxError: a score is not finite, or a query is a vector.
    """
    check_texts(queries, "the reranker")
    groups = _groups(candidates)
    numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
    query_numbers = np.array([numbers[query] for query in queries], dtype=np.int64)[groups]
    _, first, pair_numbers = np.unique(np.stack([query_numbers, candidates.rows]), axis=1, return_index=True, return_inverse=True)
    paired = [queries[group] for group in groups[first].tolist()]
    scores = reranker.score(paired, [passages[row] for row in candidates.rows[first].tolist()])
    return _rank(candidates.rows, scores[pair_numbers], groups, len(queries))


def truncate(lists: Lists, k: int) -> Lists:
    """Cut each list to its k best entries; return the lists without gaps between them."""
    return compact(lists._replace(ends=np.minimum(lists.ends, lists.starts + k)))


def _groups(candidates: Lists) -> NDArray[np.int64]:
    """Return the number of the group of each candidate."""
    return np.repeat(np.arange(len(candidates.starts)), candidates.ends - candidates.starts)


def _rank(rows: Rows, scores: Scores, groups: NDArray[np.int64], n_groups: int) -> Lists:
    """Return a list for each group, best first, ties by ascending row; rows with a score of -inf are left out."""
    scored = np.flatnonzero(scores != -np.inf)
    if not np.isfinite(scores[scored]).all():
        raise IdxError(f"row {rows[scored][~np.isfinite(scores[scored])][0]} was given a score that is not a finite number")
    order = scored[np.lexsort((rows[scored], -scores[scored], groups[scored]))]
    sizes = np.bincount(groups[scored], minlength=n_groups)
    ends = np.cumsum(sizes)
    return Lists(rows[order], scores[order], ends - sizes, ends)

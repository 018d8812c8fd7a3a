"""LocalSearcher: the query path.

All queries of all groups go through each retriever as one batch of distinct queries. Then: per query fuse the retrievers -> per group
merge the queries -> dedup -> rerank -> cut to k -> one store fetch of the distinct rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import near_names
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams
from wikidx.indexer.naming import canonical_name

from . import kernels
from .base import DEFAULTS, Found, Ranking, Reranker, Retriever, ScoredPassage, Searcher, check_groups
from .fusion import Fusion, as_lists, fuse, merge, targets_of
from .kernels import Lists, Targets
from .options import SearchOptions
from .rerank import by_cross_encoder, by_root, first_places


class LocalSearcher(Searcher):
    """Searches a store in this process with one or several retrievers; thread-safe.

    Args:
        store: the passages.
        retrievers: name -> retriever.
        reranker: for ``rerank="cross-encoder"``; None: not available.
    """

    def __init__(self, store: PassageStore, retrievers: Mapping[str, Retriever], reranker: Reranker | None = None) -> None:
        if not retrievers:
            raise ValueError("a searcher needs at least one retriever")
        self._store = store
        self._retrievers = dict(retrievers)
        self._reranker = reranker

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group; a group is its primary query, the first, and any number of further queries.

        A query repeated within a group counts once.

        Raises:
            TypeError: a group is not a sequence of strings.
            ValueError: a group is empty, or a query contains a lone surrogate.
            UnknownNameError: a weight is for a retriever that the searcher does not have.
            InputError: the requested reranking is not available, or a parameter is unknown to all retrievers or exceeds a limit.
            IdxError: a retriever or an artefact fails.
        """
        self._check(options)
        check_groups(groups)
        queries = list(dict.fromkeys(query for group in groups for query in group))
        if not queries:
            return []
        depth = min(max(options.depth, options.k), len(self._store))
        lists = as_lists(self._first_stages(queries, depth, options.params()), len(self._store))
        numbers = {query: number for number, query in enumerate(queries)}
        targets = targets_of([[numbers[query] for query in dict.fromkeys(group)] for group in groups])
        best, passages = self._best(lists, targets, [group[0] for group in groups], options)
        found = self._found(lists, targets, queries, best)
        rows, scores = best.rows.tolist(), best.scores.tolist()
        fields = zip([passages[row] for row in rows], rows, scores, found, strict=True)
        hits = map(tuple.__new__, itertools.repeat(ScoredPassage), fields)  # ScoredPassage(*...) without a Python frame
        return [list(itertools.islice(hits, n)) for n in (best.ends - best.starts).tolist()]

    def _check(self, options: SearchOptions) -> None:
        for name in options.weights or ():
            if canonical_name(name) not in self._retrievers:
                raise near_names("retriever", name, self._retrievers)
        if options.rerank == "cross-encoder" and self._reranker is None:
            raise InputError("rerank is 'cross-encoder', but the searcher was opened without one: name a reranker when opening it")
        if options.params() != DEFAULT_PARAMS:
            self._check_params(options.params())

    def _check_params(self, params: SearchParams) -> None:
        known = {name: list(retriever.parameters) for name, retriever in self._retrievers.items()}
        for param in params.given():
            if not any(param in names for names in known.values()):
                there = "; ".join(f"'{name}' has {', '.join(names) or 'none'}" for name, names in known.items())
                raise InputError(f"{param} is no parameter of {' or '.join(map(repr, self._retrievers))}: {there}")

    def _first_stages(self, queries: Sequence[str], depth: int, params: SearchParams) -> list[Hits]:
        """Search with all retrievers in parallel, each with all queries."""
        retrievers = list(self._retrievers.values())
        if len(retrievers) == 1:
            return [retrievers[0].retrieve(queries, depth, params)]
        contexts = [copy_context() for _ in retrievers]  # the bounds of the search
        with ThreadPoolExecutor(len(retrievers)) as pool:
            return list(pool.map(lambda context, stage: context.run(stage.retrieve, queries, depth, params), contexts, retrievers))

    def _best(self, lists: Lists, targets: Targets, roots: Sequence[str], options: SearchOptions) -> tuple[Lists, Mapping[int, Passage]]:
        """Return the k best of each group, and their passages by row."""
        names = list(self._retrievers)
        weights = {canonical_name(name): weight for name, weight in (options.weights or {}).items()}
        fusion = Fusion(options.fuse, tuple(weights.get(name, 1.0) for name in names), options.normalize)
        if len(names) == 1:
            fusion = Fusion("sum", (1.0,))
        k = options.k
        if options.rerank != "none":
            k = max(k, options.rerank_depth or len(self._store))
        text_key = self._store.text_key if options.dedup == "text" else None
        fused = lists if len(names) == 1 else fuse(lists, fusion)
        best = merge(fused, targets, options.merge, k=k, text_key=text_key)
        if options.rerank == "root":
            best = first_places(by_root(best, roots, list(self._retrievers.values()), fusion), options.k)
        rows = np.unique(best.rows)
        passages = dict(zip(rows.tolist(), self._store.get_many(rows), strict=True))
        if options.rerank == "cross-encoder" and self._reranker is not None:
            best = first_places(by_cross_encoder(best, roots, passages, self._reranker), options.k)
        return best, passages

    def _found(self, lists: Lists, targets: Targets, queries: Sequence[str], best: Lists) -> list[tuple[Found, ...]]:
        """Return the provenance of each passage, by query, then retriever."""
        names = list(self._retrievers)
        searches = (targets.members[:, None] + len(queries) * np.arange(len(names))).ravel()
        origins = kernels.origins(lists, searches, targets.starts * len(names), best)
        retriever, query = np.divmod(origins.members, len(queries))
        columns = np.array(queries, dtype=object)[query], np.array(names, dtype=object)[retriever], origins.ranks, origins.scores
        fields = zip(*(column.tolist() for column in columns), strict=True)
        found = list(map(tuple.__new__, itertools.repeat(Found), fields))
        return [tuple(found[start:end]) for start, end in itertools.pairwise([0, *origins.ends.tolist()])]

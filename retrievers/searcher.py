"""``LocalSearcher``: the path from queries to ranked passages.

Each retriever searches for the distinct queries of all groups in one batch. The results are fused per query, merged per group,
deduplicated, reranked and cut to k. One call to the store fetches the passages of all distinct rows, before a cross-encoder reads them.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Unpack

import numpy as np

from wikidx.corpora.errors import InputError, UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.corpora.registry import unknown_name_error
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams
from wikidx.indexer.machine.compiled import interpreted
from wikidx.indexer.naming import canonical_name

from . import kernels
from .base import DEFAULTS, Match, Ranking, Rankings, Reranker, Retriever, ScoredPassage, Searcher, check_groups, check_ids
from .fusion import Fusion, fuse, make_targets, merge, to_lists
from .kernels import Lists, Targets
from .options import SearchOptions, SearchOptionValues, override
from .rerank import rerank_by_cross_encoder, rerank_by_primary, truncate


class LocalSearcher(Searcher):
    """Searcher over a store in this process, with one or several retrievers; thread-safe.

    Args:
        store: the passages.
        retrievers: retrievers by name.
        reranker: cross-encoder for ``rerank="cross-encoder"``; None: not available.
    """

    def __init__(self, store: PassageStore, retrievers: Mapping[str, Retriever], reranker: Reranker | None = None) -> None:
        if not retrievers:
            raise ValueError("a searcher needs at least one retriever")
        self._store = store
        self._retrievers = dict(retrievers)
        self._reranker = reranker
        self._finalizers: list[weakref.finalize[[], LocalSearcher]] = []

    def __enter__(self) -> LocalSearcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._store)

    def __bool__(self) -> bool:
        return True  # otherwise a searcher without passages would be false

    def __repr__(self) -> str:
        state = "+".join(self._retrievers) or "closed"
        return f"<LocalSearcher of '{self._store.folder.parent.name}': {len(self):,} passages, {state}>"

    def close(self) -> None:
        """Release the indexes and encoders, and call the functions of ``call_when_closed``; later searches raise ``ValueError``."""
        self._retrievers.clear()
        self._reranker = None
        for finalize in self._finalizers:
            finalize()

    def call_when_closed(self, release: Callable[[], object]) -> None:
        """Register a function to be called once, when the searcher is closed or deleted, or the process ends.

        ``release`` must not refer to the searcher, which otherwise would never be deleted.
        """
        self._finalizers.append(weakref.finalize(self, release))

    def passage(self, id: str) -> Passage:
        """Return the passage with this id; raises as ``passages`` does."""
        return self.passages([id])[0]

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in the order of ``ids``.

        Raises:
            UnknownNameError: no passage has one of the ids.
            TypeError: the ids are not a list of strings.
            ValueError: the searcher is closed.
            ArtifactCorrupt: a passage is corrupt.
        """
        self._check_open()
        check_ids(ids)
        rows = self._store.rows_of(ids).tolist()
        for name, row in zip(ids, rows, strict=True):
            if row < 0:
                raise UnknownNameError(f"no passage of '{self._store.folder.parent.name}' has the id {name!r:.80}")
        return self._store.get_many(rows)

    def search_groups(
        self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]
    ) -> Rankings:
        """Return one ranking for each group of queries.

        The first query of a group is its primary query. A query repeated within a group counts once.

        >>> searcher.search_groups([["longest river of Africa", "country where the Nile ends"]], k=3)

        Args:
            groups: the groups.
            options: the search options.
            values: single options, which override those of ``options``.

        Raises:
            TypeError: a group is not a sequence of strings.
            ValueError: a group is empty, or a query contains a lone surrogate; or the searcher is closed.
            UnknownNameError: a weight names a retriever that the searcher lacks.
            InputError: the requested reranking is not available, or a parameter is unknown to all retrievers or exceeds a limit.
            IdxError: a retriever fails, or an artifact cannot be used.
        """
        options = override(options, values)
        self._check(options)
        check_groups(groups)
        queries = list(dict.fromkeys(query for group in groups for query in group))
        if not queries:
            return Rankings()
        depth = min(max(options.depth, options.k), len(self._store))
        lists = to_lists(self._retrieve(queries, depth, options.params()), len(self._store))
        numbers = {query: number for number, query in enumerate(queries)}
        targets = make_targets([[numbers[query] for query in dict.fromkeys(group)] for group in groups])
        best, passages = self._top(lists, targets, [group[0] for group in groups], options)
        provenance = self._collect_provenance(lists, targets, queries, best)
        rows, scores = best.rows.tolist(), best.scores.tolist()
        fields = zip([passages[row] for row in rows], rows, scores, provenance, strict=True)
        hits = map(tuple.__new__, itertools.repeat(ScoredPassage), fields)  # faster than ScoredPassage(...), a Python function
        return Rankings(
            Ranking(itertools.islice(hits, n), group) for n, group in zip((best.ends - best.starts).tolist(), groups, strict=True)
        )

    def _check_open(self) -> None:
        if not self._retrievers:
            raise ValueError("the searcher is closed: open it again")

    def _check(self, options: SearchOptions) -> None:
        self._check_open()
        for name in options.weights or ():
            if canonical_name(name) not in self._retrievers:
                raise unknown_name_error("retriever", name, self._retrievers)
        if options.rerank == "cross-encoder" and self._reranker is None:
            raise InputError(
                "rerank is 'cross-encoder', but the searcher was opened without one: name a reranker when opening it (--reranker NAME)"
            )
        if options.params() != DEFAULT_PARAMS:
            self._check_params(options.params())

    def _check_params(self, params: SearchParams) -> None:
        known = {name: list(retriever.parameters) for name, retriever in self._retrievers.items()}
        for param in params.overrides():
            if not any(param in names for names in known.values()):
                known_by = "; ".join(f"'{name}' has {', '.join(names) or 'none'}" for name, names in known.items())
                raise InputError(f"{param} is no parameter of {' or '.join(map(repr, self._retrievers))}: {known_by}")

    def _retrieve(self, queries: Sequence[str], depth: int, params: SearchParams) -> list[Hits]:
        """Search with all retrievers in parallel, each with all queries."""
        retrievers = list(self._retrievers.values())
        if len(retrievers) == 1:
            return [retrievers[0].retrieve(queries, depth, params)]
        contexts = [copy_context() for _ in retrievers]  # they pass the bounds of the search to the threads
        with ThreadPoolExecutor(len(retrievers)) as pool:
            return list(pool.map(lambda context, retriever: context.run(retriever.retrieve, queries, depth, params), contexts, retrievers))

    def _top(self, lists: Lists, targets: Targets, primary: Sequence[str], options: SearchOptions) -> tuple[Lists, Mapping[int, Passage]]:
        """Return the k best rows of each group, and their passages by row."""
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
        if options.rerank == "primary":
            best = truncate(rerank_by_primary(best, primary, list(self._retrievers.values()), fusion), options.k)
        rows = np.unique(best.rows)
        passages = dict(zip(rows.tolist(), self._store.get_many(rows), strict=True))
        if options.rerank == "cross-encoder" and self._reranker is not None:
            best = truncate(rerank_by_cross_encoder(best, primary, passages, self._reranker), options.k)
        return best, passages

    def _collect_provenance(self, lists: Lists, targets: Targets, queries: Sequence[str], best: Lists) -> list[tuple[Match, ...]]:
        """Return the provenance of each passage, ordered by query, then retriever."""
        names = list(self._retrievers)
        searches = (targets.members[:, None] + len(queries) * np.arange(len(names))).ravel()
        with interpreted(2 * len(lists.rows)):
            origins = kernels.find_origins(lists, searches, targets.starts * len(names), best)
        retriever, query = np.divmod(origins.members, len(queries))
        columns = np.array(queries, dtype=object)[query], np.array(names, dtype=object)[retriever], origins.ranks, origins.scores
        fields = zip(*(column.tolist() for column in columns), strict=True)
        matches = list(map(tuple.__new__, itertools.repeat(Match), fields))
        return [tuple(matches[start:end]) for start, end in itertools.pairwise([0, *origins.ends.tolist()])]

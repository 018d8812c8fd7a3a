"""``LocalSearcher``: the path from queries to ranked passages.

Each retriever searches for the distinct queries of all groups in one batch. The results are fused per query, by the search options or by
a pipeline, merged per group, deduplicated, reranked and cut to k. One call to the store fetches the passages of all distinct rows, before a
cross-encoder reads them.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from wikidx.base.compiled import interpreted
from wikidx.base.errors import ClosedError, InputError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Passage, Span
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import DEFAULT_PARAMS, SearchParams
from wikidx.indexer.naming import canonical_name
from wikidx.indexer.scope import Scope

from . import kernels
from .base import (
    DEFAULTS,
    Match,
    OpenedSearcher,
    Ranking,
    Rankings,
    Reranker,
    Retriever,
    RowFilter,
    ScoredPassage,
)
from .collapsing import collapse, cut_at_documents, have_documents
from .documents import Excerpt, Window, read_excerpt, spans_of
from .fusion import Fusion, concatenate, fuse, make_targets, merge, select, to_lists
from .kernels import Lists, Targets
from .options import SearchOptions, SearchOptionValues, override
from .pipelines.running import Stages, run
from .pipelines.tree import REMOTE, Node, source_depths
from .refusals import blank_refused, find_refused, mark_refused
from .rerank import rerank_by_cross_encoder, rerank_by_primary, truncate
from .vector_queries import GivenVectors, QueriesRefused, check_texts

_DEEPER = 4  # times as many candidates, where they are of too few documents


class LocalSearcher(OpenedSearcher):
    """Searcher over a store in this process, with one or several retrievers; thread-safe.

    Args:
        store: the passages.
        retrievers: retrievers by name; at least one.
        reranker: cross-encoder for ``rerank="cross-encoder"``; None: not available.
        pipeline: pipeline over the retrievers; None: the search options fuse them.
        rerankers: rerankers of the pipeline by name.
    """

    def __init__(
        self,
        store: PassageStore,
        retrievers: Mapping[str, Retriever],
        reranker: Reranker | None = None,
        pipeline: Node | None = None,
        rerankers: Mapping[str, Reranker] | None = None,
    ) -> None:
        self._store = store
        self._retrievers = dict(retrievers)
        self._reranker = reranker
        self._pipeline, self._rerankers = pipeline, dict(rerankers or {})
        self._finalizers: list[weakref.finalize[[], LocalSearcher]] = []

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._store)

    def __repr__(self) -> str:
        return f"<LocalSearcher of '{self._store.folder.parent.name}': {len(self):,} passages, {self.retriever}>"

    @property
    def retriever(self) -> str:
        """Name of the retriever or pipeline; "closed" after ``close``."""
        return str(self._pipeline or "+".join(self._retrievers)) if self._retrievers else "closed"

    def close(self) -> None:
        """Release the indexes and encoders, and call the functions of ``call_when_closed``; later searches raise ``ClosedError``."""
        self._retrievers.clear()
        self._rerankers.clear()
        self._reranker = self.reopen = None
        for finalize in self._finalizers:
            finalize()

    @property
    def query_encoders(self) -> dict[str, dict[str, str]]:
        """Precision and device in effect of each encoder of queries in this process, by retriever; those of a server are its own."""
        encoders: dict[str, Any] = {name: getattr(retriever, "encoder", None) for name, retriever in self._retrievers.items()}
        return {name: {"dtype": encoder.dtype, "device": encoder.device} for name, encoder in encoders.items() if hasattr(encoder, "dtype")}

    def call_when_closed(self, release: Callable[[], object]) -> None:
        """Register a function to be called once, when the searcher is closed or deleted, or the process ends.

        ``release`` must not refer to the searcher, which otherwise would never be deleted.
        """
        self._finalizers.append(weakref.finalize(self, release))

    def _find(self, ids: Sequence[str]) -> tuple[str, dict[str, Passage]]:
        self._check_open()
        rows = [row for row in self._store.rows_of(ids).tolist() if row >= 0]
        return self._store.folder.parent.name, {passage.id: passage for passage in self._store.get_many(rows)}

    def _excerpt(self, window: Window) -> Excerpt:
        self._check_open()
        return read_excerpt(self._store, window)

    def search_groups(
        self,
        groups: Sequence[Sequence[str]],
        options: SearchOptions = DEFAULTS,
        *,
        rows: RowFilter = None,
        **values: Unpack[SearchOptionValues],
    ) -> Rankings:
        """Return one ranking for each group of queries; a group that cannot be searched gets an empty one, and is one of the ``errors``.

        The first query of a group is its primary query. A query repeated within a group counts once.

        >>> searcher.search_groups([["river of Egypt", "country where the Nile ends"]], k=3)

        Args:
            groups: the groups.
            options: the search options.
            rows: the rows that may be returned; see ``search``.
            values: single options, which override those of ``options``.

        Raises:
            ArgumentError: no group is a sequence of strings without lone surrogates, ``options`` are no ``SearchOptions``, or ``rows`` are
                none of the corpus.
            ClosedError: the searcher is closed.
            UnknownNameError: a weight names a retriever that the searcher lacks.
            InputError: the requested reranking is not available, or a parameter is unknown to all retrievers or exceeds a limit.
            IdxError: a retriever fails, or an artifact cannot be used.
        """
        options = override(options, values)
        self._check(options)
        scope = None if rows is None else Scope.of(rows, len(self))
        refused = find_refused(groups)
        while True:
            valid = blank_refused(groups, refused)
            try:
                return mark_refused(self._search(valid, options, scope), refused)
            except QueriesRefused as error:
                texts = ((position, query) for position, group in enumerate(valid) if position not in refused for query in group)
                named = {position: query for position, query in texts if query in error.reasons}
                if not named:
                    raise
                refused |= {position: QueriesRefused({query: error.reasons[query]}, error.dim) for position, query in named.items()}

    def _search(self, groups: Sequence[Sequence[str]], options: SearchOptions, scope: Scope | None) -> Rankings:
        queries = list(dict.fromkeys(query for group in groups for query in group))
        if not queries:
            return Rankings()
        stages, n_queries = Stages(is_explained=options.explain), sum(len(set(group)) for group in groups)
        is_final = n_queries == len(groups) and self._returns_rankings(options)
        if options.collapse == "none":
            retrieved = self._retrieve(queries, self._depths(options, is_final=is_final), options, scope, stages)
        else:
            retrieved = self._retrieve_documents(queries, options, scope, stages)
        numbers = {query: number for number, query in enumerate(queries)}
        targets = make_targets([[numbers[query] for query in dict.fromkeys(group)] for group in groups])
        fused = self._fuse(retrieved, queries, options, stages)
        with _paused_collection():
            best, passages = self._top(fused, targets, [group[0] for group in groups], options, stages, is_final=is_final)
            provenance: Iterable[tuple[Match, ...]]
            if is_final:
                provenance = _provenance_by_rank([group[0] for group in groups], next(iter(retrieved)), best)
            else:
                provenance = self._collect_provenance(concatenate(list(retrieved.values())), targets, queries, best)
            rankings = _to_rankings(groups, best, passages, provenance, spans_of(self._store, best.rows.tolist()))
        return Rankings(rankings, stages)

    def _check_open(self) -> None:
        if not self._retrievers:
            raise ClosedError("the searcher is closed: open it again")

    def _check(self, options: SearchOptions) -> None:
        self._check_open()
        for name in options.weights or ():
            if canonical_name(name) not in self._retrievers:
                raise unknown_name_error("retriever", name, self._retrievers)
        if options.rerank == "cross-encoder" and self._reranker is None:
            raise InputError(
                "rerank is 'cross-encoder', but the searcher was opened without one: name a reranker when opening it (--reranker NAME)"
            )
        if self._pipeline is not None and options.fuse != "rrf":
            raise InputError(f"fuse is '{options.fuse}', but the pipeline '{self._pipeline}' says how to fuse: leave it out")
        if self._pipeline is not None and options.rerank == "primary":
            raise InputError(f"rerank is 'primary', which no pipeline knows: end '{self._pipeline}' with '>> RERANKER' instead")
        if options.collapse != "none":
            self._store.first_rows  # noqa: B018 - which raises unless there are documents
        if options.params() != DEFAULT_PARAMS:
            self._check_params(options.params())

    def _check_params(self, params: SearchParams) -> None:
        known = {name: list(retriever.parameters) for name, retriever in self._retrievers.items()}
        for param in params.overrides():
            if not any(param in names for names in known.values()):
                known_by = "; ".join(f"'{name}' has {', '.join(names) or 'none'}" for name, names in known.items())
                raise InputError(f"{param} is no parameter of {' or '.join(map(repr, self._retrievers))}: {known_by}")

    def _returns_rankings(self, options: SearchOptions) -> bool:
        """Return whether the k best rows that the retriever returns for a query are already the query's ranking."""
        is_kept = options.merge in ("max", "sum") and options.dedup == "row" and options.rerank == options.collapse == "none"
        return is_kept and self._pipeline is None and len(self._retrievers) == 1

    def _depths(self, options: SearchOptions, *, is_final: bool = False) -> dict[str, int]:
        """Return how many rows each retriever searches for.

        Of an exact search whose lists are final, only the k best rows are needed.
        """
        is_exact = not any(retriever.parameters for retriever in self._retrievers.values())
        depth = options.k if is_final and is_exact else max(options.depth, options.k)
        depths = dict.fromkeys(self._retrievers, depth) | (source_depths(self._pipeline, depth) if self._pipeline else {})
        return {name: min(depth, len(self._store)) for name, depth in depths.items()}

    def _retrieve_documents(self, queries: Sequence[str], options: SearchOptions, scope: Scope | None, stages: Stages) -> dict[str, Lists]:
        """Search as ``_retrieve`` does, deeper until each list has k documents or is at its end."""
        depths, firsts = self._depths(options), self._store.first_rows
        while True:
            retrieved = self._retrieve(queries, depths, options, scope, stages)
            options = replace(options, depth=_DEEPER * max(options.depth, options.k))
            before, depths = depths, self._depths(options)
            if depths == before or all(have_documents(lists, firsts, options.k, before[name]) for name, lists in retrieved.items()):
                return retrieved

    def _retrieve(
        self, queries: Sequence[str], depths: Mapping[str, int], options: SearchOptions, scope: Scope | None, stages: Stages
    ) -> dict[str, Lists]:
        """Search with all retrievers in parallel, each with all queries; return a list for each query by retriever."""
        params, n_rows = options.params(), len(self._store)
        params = params if scope is None else replace(params, scope=scope)

        def retrieve(name: str) -> Lists:
            if not isinstance(getattr(self._retrievers[name], "encoder", None), GivenVectors):
                check_texts(queries, name)
            retriever, n_results = self._retrievers[name], depths[name]
            return stages.measure(name, None, lambda: to_lists(retriever.retrieve(queries, n_results, params), n_rows))

        if len(depths) == 1:
            return {name: retrieve(name) for name in depths}
        contexts = [copy_context() for _ in depths]  # they pass the bounds of the search to the threads
        is_remote = any(name.startswith(REMOTE) for name in depths)
        with RequestThreads(len(depths)) if is_remote else ThreadPoolExecutor(len(depths)) as pool:
            return dict(zip(depths, pool.map(lambda context, name: context.run(retrieve, name), contexts, depths), strict=True))

    def _fuse(self, retrieved: Mapping[str, Lists], queries: Sequence[str], options: SearchOptions, stages: Stages) -> Lists:
        """Return one list for each query, by the pipeline or by the search options."""
        if self._pipeline is not None:
            return run(self._pipeline, retrieved, lambda name, lists: self._rerank(name, lists, queries), stages)
        lists = concatenate(list(retrieved.values()))
        if len(retrieved) == 1:
            return lists
        return stages.measure(options.fuse, lists, lambda: fuse(lists, self._fusion(options)))

    def _fusion(self, options: SearchOptions) -> Fusion:
        if len(self._retrievers) == 1:
            return Fusion("sum", (1.0,))
        weights = {canonical_name(name): weight for name, weight in (options.weights or {}).items()}
        return Fusion(options.fuse, tuple(weights.get(name, 1.0) for name in self._retrievers), options.normalize)

    def _rerank(self, name: str, candidates: Lists, queries: Sequence[str]) -> Lists:
        return rerank_by_cross_encoder(candidates, queries, self._read(candidates), self._rerankers[name])

    def _read(self, lists: Lists) -> dict[int, Passage]:
        rows = np.unique(lists.rows)
        return dict(zip(rows.tolist(), self._store.get_many(rows), strict=True))

    def _top(  # noqa: PLR0913
        self, fused: Lists, targets: Targets, primary: Sequence[str], options: SearchOptions, stages: Stages, *, is_final: bool
    ) -> tuple[Lists, Mapping[int, Passage]]:
        """Return the k best rows of each group, and their passages by row."""
        k = n_candidates = options.k
        if options.rerank != "none":
            n_candidates = max(k, options.rerank_depth or len(self._store))
        firsts = None if options.collapse == "none" else self._store.first_rows
        text_key = self._store.text_key if options.dedup == "text" else None

        def cut() -> Lists:
            if is_final:
                return select(fused, targets.members, k)
            if firsts is None:
                return merge(fused, targets, options.merge, k=n_candidates, text_key=text_key)
            merged = merge(fused, targets, options.merge, text_key=text_key)
            return shorten(merged) if options.rerank == "none" else cut_at_documents(merged, firsts, k, n_candidates)

        def shorten(lists: Lists) -> Lists:
            return truncate(lists, k) if firsts is None else collapse(lists, firsts, k, is_summed=options.collapse == "document_sum")

        def rerank(by: Callable[[], Lists]) -> Lists:
            return stages.measure(f"rerank {options.rerank}", candidates, lambda: shorten(by()))

        best = candidates = stages.measure(f"merge {options.merge}", fused, cut)
        if options.rerank == "primary":
            retrievers, fusion = list(self._retrievers.values()), self._fusion(options)
            best = rerank(lambda: rerank_by_primary(candidates, primary, retrievers, fusion))
        passages = stages.measure("passages", best, lambda: self._read(best), best)
        if options.rerank == "cross-encoder" and (reranker := self._reranker) is not None:
            best = rerank(lambda: rerank_by_cross_encoder(candidates, primary, passages, reranker))
        return best, passages

    def _collect_provenance(self, lists: Lists, targets: Targets, queries: Sequence[str], best: Lists) -> list[tuple[Match, ...]]:
        """Return the provenance of each passage, ordered by query, then retriever."""
        names = list(self._retrievers)
        searches = (targets.members[:, None] + len(queries) * np.arange(len(names))).ravel()
        with interpreted(len(lists.rows)):
            found, numbers, ranks, scores = kernels.find_origins(lists, searches, targets.starts * len(names), best)
        order = np.argsort(found, kind="stable")
        retriever, query = np.divmod(numbers[order], len(queries))
        columns = np.array(queries, dtype=object)[query], np.array(names, dtype=object)[retriever], ranks[order], scores[order]
        fields = zip(*(column.tolist() for column in columns), strict=True)
        matches = list(map(tuple.__new__, itertools.repeat(Match), fields))
        return [
            tuple(matches[start:end])
            for start, end in itertools.pairwise(np.searchsorted(found[order], np.arange(len(best.rows) + 1)).tolist())
        ]


@contextmanager
def _paused_collection() -> Iterator[None]:
    """Pause the garbage collector: thousands of new tuples, none in a cycle, would start it again and again, for a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _provenance_by_rank(queries: Sequence[str], retriever: str, best: Lists) -> Iterator[tuple[Match]]:
    """Yield the provenance of each passage, if each ranking is a list of the retriever for one query."""
    sizes = (best.ends - best.starts).tolist()
    each_query = itertools.chain.from_iterable(map(itertools.repeat, queries, sizes))
    ranks = itertools.chain.from_iterable(range(1, size + 1) for size in sizes)
    fields = zip(each_query, itertools.repeat(retriever), ranks, best.scores.tolist(), strict=False)
    return zip(map(tuple.__new__, itertools.repeat(Match), fields), strict=True)


def _to_rankings(
    groups: Sequence[Sequence[str]],
    best: Lists,
    passages: Mapping[int, Passage],
    provenance: Iterable[tuple[Match, ...]],
    spans: Mapping[int, Span | None],
) -> list[Ranking]:
    """Return the ranking of each group; tuples are made by ``tuple.__new__``, which is faster than the named tuples' own."""
    rows, sizes = best.rows.tolist(), (best.ends - best.starts).tolist()
    places = map(spans.get, rows) if spans else itertools.repeat(None, len(rows))
    fields = zip(map(passages.__getitem__, rows), rows, best.scores.tolist(), provenance, places, strict=True)
    hits = map(tuple.__new__, itertools.repeat(ScoredPassage), fields)
    return [Ranking(itertools.islice(hits, size), group) for size, group in zip(sizes, groups, strict=True)]

"""Search shared by all approximate indexes: it maps positions to rows, orders ties, and rescores candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import save_array
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import InputError
from wikidx.base.machine.fit import Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import (
    DEFAULT_PARAMS,
    NO_ROW,
    Hits,
    Scores,
    SearchParam,
    SearchParams,
    Vectors,
    check_k,
    empty_hits,
    validate_queries,
)
from wikidx.indexer.indexes.exact.cpu import search_few
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.indexer.scope import Scope, to_words
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors, positions_to_rows
from wikidx.indexer.vectors.file import MISSING

from .kinds import IndexBuild, OpenOptions

LARGEST_K = 2_048  # FAISS's limit on k and on nprobe on a GPU
_LARGEST_EF_SEARCH = 65_536
_LARGEST_REFINE = 1_000
_MOST_TIED = 16_384  # limit on results fetched to order ties; a corpus may repeat a passage a million times
_RESULTS_AT_ONCE = 2 << 20  # limit on results of a batch, about 60 bytes each

_FEW_ROWS = 50  # a scope of a smaller part of the rows is searched exactly
_WIDER = 4  # factor of lists, or of results, where too few of a scope are found

RawSearch = Callable[[Vectors, int, Mapping[str, int], Scope | None], tuple[Scores, Rows]]
PlainSearch = Callable[[Vectors, int, Mapping[str, int]], tuple[Scores, Rows]]


class ApproximateIndex:
    """An open approximate index; ``search`` is thread-safe."""

    def __init__(
        self, manifest: Manifest, missing: Rows, n_vectors: int, options: OpenOptions, search: RawSearch, placement: Placement
    ) -> None:
        """Wrap an index, or a range of its rows.

        Args:
            manifest: the index's manifest.
            missing: rows without a vector, by which positions are mapped to rows; empty if the index stores row numbers.
            n_vectors: number of vectors that are open.
            options: options of opening; they include the vectors for rescoring.
            search: (queries, k, search parameters, scope of positions) -> scores and positions, both (Q, k), best first; an unused slot
                has position -1.
            placement: devices of ``search``; on GPUs, it gives at most ``LARGEST_K`` results, from as many lists.
        """
        self._n_rows, self._n_vectors, self._missing = manifest.count("rows"), n_vectors, missing
        self._options, self._search = options, search
        self._largest_k = None if placement.devices == ("cpu",) else LARGEST_K
        self.dim, self.parameters, self.placement = manifest.count("dim"), _read_parameters(manifest, self._largest_k), placement

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors. Parameters that this index lacks are ignored.

        All rows of a small scope are scored exactly, if the vectors are there. In a larger one, ``ef_search`` is the larger the smaller the
        scope, and more lists are searched for queries of which fewer than k rows were found.

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
            ArtifactCorrupt: the index's files are corrupt.
            InputError: a parameter or k exceeds its limit, or the vectors for rescoring are missing.
        """
        check_k(k)
        queries = validate_queries(vectors, self.dim)
        settings = self._settings(params)
        refine = settings.pop("refine", 0)
        allowed = None if params.scope is None else self._positions(params.scope)
        n_allowed = self._n_vectors if allowed is None else len(allowed)
        n_results = min(k, n_allowed)
        if not len(queries) or not n_results:
            return empty_hits(len(queries), k)
        if params.scope is not None and allowed is not None:
            source = self._options.vectors
            if len(params.scope) * _FEW_ROWS < len(self) and source is not None:  # in the parts of an index as in the whole
                return search_few(source.array, positions_to_rows(allowed.rows(), self._missing), queries, k)
            if "ef_search" in settings:
                settings["ef_search"] = min(-(-settings["ef_search"] * self._n_vectors // n_allowed), _LARGEST_EF_SEARCH)
        self._check_k(n_results, refine)
        search = self._search_and_rescore if refine else self._search_with_ties
        width = min(n_results * max(1, refine), n_allowed)
        parts = [search(queries[batch], n_results, width, settings, allowed) for batch in _batches(len(queries), width)]
        empty = ((0, 0), (0, k - parts[0].rows.shape[1]))
        rows, scores = (np.concatenate([part[number] for part in parts]) for number in range(2))
        return Hits(np.pad(rows, empty, constant_values=NO_ROW), np.pad(scores, empty, constant_values=-np.inf))

    def _positions(self, scope: Scope) -> Scope:
        """Return the positions of the rows of a scope that have vectors here."""
        mask, rows, source = scope.mask(), self._options.rows, self._options.vectors
        if source is not None:
            mask[source.missing] = False
        if rows is not None:
            mask[: rows.start] = mask[rows.stop :] = False
        mask = np.delete(mask, self._missing)
        return Scope(to_words(mask), len(mask))

    def _settings(self, params: SearchParams) -> dict[str, int]:
        """Return the value of each search parameter of this index."""
        overrides = params.overrides()
        for name, param in self.parameters.items():
            if overrides.get(name, 0) > param.maximum:
                raise InputError(f"{name} {overrides[name]:,}: for '{self._options.name}' it can be at most {param.maximum:,}")
        return {name: overrides.get(name, param.default) for name, param in self.parameters.items()}

    def _check_k(self, k: int, refine: int) -> None:
        n_candidates = k * max(1, refine)
        if self._largest_k is not None and n_candidates > self._largest_k:
            requested = f"k {k:,}" + (f" with refine {refine}" if refine > 1 else "")
            raise InputError(
                f"{requested}: FAISS finds at most {self._largest_k:,} on a GPU; exact search ('{self._options.encoder}') has no such limit"
            )

    def _search_rows(self, queries: Vectors, k: int, settings: Mapping[str, int], allowed: Scope | None) -> Hits:
        """Return the results of the raw search as rows of the corpus."""
        scores, positions = self._search(queries, k, settings, allowed)
        n_lists, most_lists = settings.get("nprobe", 0), self.parameters["nprobe"].maximum if "nprobe" in settings else 0
        while allowed is not None and n_lists < most_lists and len(lacking := np.flatnonzero(positions[:, -1] < 0)):
            n_lists = min(_WIDER * n_lists, most_lists)
            scores[lacking], positions[lacking] = self._search(queries[lacking], k, {**settings, "nprobe": n_lists}, allowed)
        return Hits(positions_to_rows(positions, self._missing), np.where(positions < 0, np.float32(-np.inf), scores))

    def _search_with_ties(self, queries: Vectors, k: int, width: int, settings: Mapping[str, int], allowed: Scope | None) -> Hits:
        """Return the k best rows; of ties at the k-th score, the lowest rows. The raw search's choice among ties is arbitrary.

        If a query's last result has the k-th score, the query is searched again for four times as many results, up to ``_MOST_TIED``.
        Among more ties, the choice remains arbitrary.
        """
        n_allowed = self._n_vectors if allowed is None else len(allowed)
        limit = min(n_allowed, self._largest_k or n_allowed, max(width + 1, _MOST_TIED))
        width = min(width + 1, limit)
        hits = self._search_rows(queries, width, settings, allowed)
        best = merge_hits([hits], len(queries), k)
        tied = np.flatnonzero(_may_have_more_ties(hits, k))
        while len(tied) and width < limit:
            width = min(4 * width, limit)
            still_tied = []
            for batch in _batches(len(tied), width):
                lines = tied[batch]
                hits = self._search_rows(queries[lines], width, settings, allowed)
                best.rows[lines], best.scores[lines] = merge_hits([hits], len(lines), k)
                still_tied.append(lines[_may_have_more_ties(hits, k)])
            tied = np.concatenate(still_tied)
        return best

    def _search_and_rescore(self, queries: Vectors, k: int, width: int, settings: Mapping[str, int], allowed: Scope | None) -> Hits:
        """Return the k best of ``width`` candidates by exact score."""
        vectors = self._options.vectors
        if vectors is None:
            raise InputError(
                f"'{self._options.name}' rescores candidates from the vectors it was built from, which no longer exist: "
                "build them again, or set refine to 0"
            )
        rows = self._search_rows(queries, width, settings, allowed).rows
        return merge_hits([Hits(rows, vectors.scores(queries, rows))], len(queries), k)


def select(search: PlainSearch, n_positions: int, most: int) -> RawSearch:
    """Return a search within scopes by one that knows none: so many results are asked for that enough are within the scope.

    Args:
        search: see ``RawSearch``.
        n_positions: number of positions of the index.
        most: the most results that can be asked for; with fewer in the scope, slots remain unused.
    """

    def search_scope(queries: Vectors, k: int, settings: Mapping[str, int], scope: Scope | None) -> tuple[Scores, Rows]:
        if scope is None:
            return search(queries, k, settings)
        mask, width = scope.mask(), min(k * n_positions // max(1, len(scope)), most)
        while True:
            width = min(max(k, _WIDER * width), most)
            scores, positions = search(queries, width, settings)
            is_inside = (positions >= 0) & mask[positions]
            if width == most or (is_inside.sum(axis=1) >= k).all():
                break
        order = np.argsort(~is_inside, axis=1, kind="stable")[:, :k]
        scores, positions = np.where(is_inside, scores, np.float32(-np.inf)), np.where(is_inside, positions, NO_ROW)
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(positions, order, axis=1)

    return search_scope


def _batches(n_queries: int, width: int) -> Iterator[slice]:
    """Yield slices of queries to search together; ``width`` is the number of results per query."""
    n_at_once = max(1, _RESULTS_AT_ONCE // width)
    return (slice(first, first + n_at_once) for first in range(0, n_queries, n_at_once))


def _may_have_more_ties(hits: Hits, k: int) -> NDArray[np.bool_]:
    """Return a flag per line: true if its k-th score is also its last score, so that more ties may exist."""
    last = hits.scores[:, -1]
    may_have_more: NDArray[np.bool_] = (hits.scores[:, k - 1] == last) & np.isfinite(last)
    return may_have_more


def _read_parameters(manifest: Manifest, largest_nprobe: int | None) -> Mapping[str, SearchParam]:
    """Return the search parameters of an index."""
    parameters = manifest.recipe.parameters
    n_lists = int(parameters.get("lists") or 0)
    largest = {"nprobe": min(n_lists, largest_nprobe or n_lists), "ef_search": _LARGEST_EF_SEARCH, "refine": _LARGEST_REFINE}
    return {name: SearchParam(int(parameters[name] or 0), most) for name, most in largest.items() if name in parameters}


def save_missing(build: IndexBuild[CorpusVectors]) -> None:
    """Write the rows without a vector, if any, next to an index that stores no row numbers."""
    if len(build.source.missing):
        save_array(build.staging / MISSING, build.source.missing)

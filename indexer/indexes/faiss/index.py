"""Search shared by all FAISS indexes, on CPU and GPU: places are mapped to rows, ties are ordered, candidates are rescored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import ArtifactDamaged, InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import (
    DEFAULT_PARAMS,
    NO_ROW,
    Hits,
    Placement,
    Scores,
    SearchParam,
    SearchParams,
    Vectors,
    check_k,
    checked_queries,
    no_hits,
)
from wikidx.indexer.indexes.exact.best_keys import merge_hits
from wikidx.indexer.indexes.kinds import OpenOptions
from wikidx.indexer.vectors.corpus_vectors import rows_at

_LARGEST_EF_SEARCH = 65_536
_LARGEST_REFINE = 1_000
_MOST_TIED = 16_384  # limit on ties that are ordered; a corpus may repeat a passage a million times
_PLACES_AT_ONCE = 2 << 20  # results of all queries searched together; about 60 bytes each

RawSearch = Callable[[Vectors, int, Mapping[str, int]], tuple[Scores, Rows]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of an index, from its manifest.

    Attributes:
        n_rows: rows of the corpus.
        n_vectors: vectors in the index.
        dim: components of each.
        missing: rows without a vector, whose places the following rows take; empty if the index knows its vectors by their rows.
        parameters: search parameters of the index.
    """

    n_rows: int
    n_vectors: int
    dim: int
    missing: Rows
    parameters: Mapping[str, SearchParam]


class FaissIndex:
    """An open FAISS index; ``search`` is thread-safe."""

    def __init__(
        self, contents: Contents, opening: OpenOptions, search: RawSearch, placement: Placement, *, largest_k: int | None = None
    ) -> None:
        """Wrap an index.

        Args:
            contents: its contents.
            opening: has the vectors for rescoring, and the name.
            search: (queries, k, params) -> scores and places, each of shape (Q, k), best first; place -1 for no result.
            placement: devices of ``search``.
            largest_k: the most results of ``search``; None for no limit.
        """
        self._contents, self._opening, self._search = contents, opening, search
        self._largest_k = largest_k
        self.dim, self.parameters, self.placement = contents.dim, contents.parameters, placement

    def __len__(self) -> int:
        return self._contents.n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors.

        Parameters that this index lacks are ignored.

        Raises:
            ValueError: wrong shape, a component that is not finite, or k < 1.
            ArtifactDamaged: the index names rows that the corpus does not have.
            InputError: a parameter exceeds this index's limit; k exceeds a GPU's limit; rescoring is requested and the vectors are missing.
        """
        check_k(k)
        queries = checked_queries(vectors, self.dim)
        settings = self._settings(params)
        refine = settings.pop("refine", 0)
        n_wanted = min(k, self._contents.n_vectors)
        if not len(queries) or not n_wanted:
            return no_hits(len(queries), k)
        self._check_k(n_wanted, refine)
        find = self._rescored if refine else self._found_with_ties
        width = min(n_wanted * max(1, refine), self._contents.n_vectors)
        parts = [find(queries[some], n_wanted, width, settings) for some in _slices(len(queries), width)]
        empty = ((0, 0), (0, k - parts[0].rows.shape[1]))
        rows, scores = (np.concatenate([part[number] for part in parts]) for number in range(2))
        return Hits(np.pad(rows, empty, constant_values=NO_ROW), np.pad(scores, empty, constant_values=-np.inf))

    def _settings(self, params: SearchParams) -> dict[str, int]:
        """Return the value of each search parameter of this index."""
        given = params.given()
        for name, param in self.parameters.items():
            if given.get(name, 0) > param.largest:
                raise InputError(f"{name} {given[name]:,}: for '{self._opening.name}' it can be at most {param.largest:,}")
        return {name: given.get(name, param.default) for name, param in self.parameters.items()}

    def _check_k(self, k: int, refine: int) -> None:
        n_candidates = k * max(1, refine)
        if self._largest_k is not None and n_candidates > self._largest_k:
            asked = f"k {k:,}" + (f" with refine {refine}" if refine > 1 else "")
            raise InputError(
                f"{asked}: FAISS finds at most {self._largest_k:,} on a GPU; exact search ('{self._opening.encoder}') has no such limit"
            )

    def _found(self, queries: Vectors, k: int, settings: Mapping[str, int]) -> Hits:
        """Return FAISS's results, with places mapped to rows."""
        scores, places = self._search(queries, k, settings)
        rows = rows_at(places, self._contents.missing)
        if places.min(initial=NO_ROW) < NO_ROW or rows.max(initial=NO_ROW) >= len(self):
            raise ArtifactDamaged(f"'{self._opening.name}' found rows outside of the {len(self):,} there are: build it again with --force")
        return Hits(rows, np.where(places < 0, np.float32(-np.inf), scores))

    def _found_with_ties(self, queries: Vectors, k: int, width: int, settings: Mapping[str, int]) -> Hits:
        """Return the k best, with ties at the k-th score ordered by row: FAISS's own choice among these is arbitrary.

        Queries whose k-th score extends to the end of their results are searched again, for four times as many, up to ``_MOST_TIED``:
        among more ties the choice stays arbitrary.
        """
        limit = min(self._contents.n_vectors, self._largest_k or self._contents.n_vectors, max(width + 1, _MOST_TIED))
        width = min(width + 1, limit)
        found = self._found(queries, width, settings)
        best = merge_hits([found], len(queries), k)
        tied = np.flatnonzero(_goes_on(found, k))
        while len(tied) and width < limit:
            width = min(4 * width, limit)
            unfinished = []
            for some in _slices(len(tied), width):
                lines = tied[some]
                found = self._found(queries[lines], width, settings)
                best.rows[lines], best.scores[lines] = merge_hits([found], len(lines), k)
                unfinished.append(lines[_goes_on(found, k)])
            tied = np.concatenate(unfinished)
        return best

    def _rescored(self, queries: Vectors, k: int, width: int, settings: Mapping[str, int]) -> Hits:
        """Return the k best of ``width`` candidates by their exact scores."""
        vectors = self._opening.vectors
        if vectors is None:
            raise InputError(
                f"'{self._opening.name}' rescores what it finds from the vectors it was built from, which are not there any more: "
                "build them again, or set refine to 0"
            )
        rows = self._found(queries, width, settings).rows
        return merge_hits([Hits(rows, vectors.scores(queries, rows))], len(queries), k)


def _slices(n_queries: int, width: int) -> Iterator[slice]:
    """Yield slices of queries to search together, given the number of results of each."""
    n_at_once = max(1, _PLACES_AT_ONCE // width)
    return (slice(first, first + n_at_once) for first in range(0, n_queries, n_at_once))


def _goes_on(found: Hits, k: int) -> NDArray[np.bool_]:
    """Return for each line whether its k-th score is also its last: further ties may be missing."""
    last = found.scores[:, -1]
    goes_on: NDArray[np.bool_] = (found.scores[:, k - 1] == last) & np.isfinite(last)
    return goes_on


def contents_of(manifest: Manifest, missing: Rows, n_vectors: int, *, largest_nprobe: int | None = None) -> Contents:
    """Return the contents of an index from its manifest, or of a part of it with that many vectors; parameters include search defaults.

    Raises:
        ArtifactDamaged: a parameter is invalid.
    """
    parameters = manifest.recipe.parameters
    largest = {"nprobe": parameters.get("lists"), "ef_search": _LARGEST_EF_SEARCH, "refine": _LARGEST_REFINE}
    searched = dict[str, SearchParam]()
    for name in largest.keys() & parameters.keys():
        default, most = parameters[name], largest[name]
        if not isinstance(default, int) or not isinstance(most, int):
            raise ArtifactDamaged(f"the manifest of '{manifest.recipe.kind}' says {name} {default} of {most}: build it again with --force")
        searched[name] = SearchParam(default, min(most, largest_nprobe or most) if name == "nprobe" else most)
    return Contents(
        n_rows=manifest.count("rows"),
        n_vectors=n_vectors,
        dim=manifest.count("dim"),
        missing=missing,
        parameters=searched,
    )

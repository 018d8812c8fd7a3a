"""Types shared by all indexes and encoders: arrays, ``Hits``, search parameters and three protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from wikidx.base.machine.fit import Placement
from wikidx.base.validation import options
from wikidx.corpora.passage import NO_ROW as NO_ROW
from wikidx.corpora.passage import Passage, Rows
from wikidx.indexer.scope import Scope

Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]
Stored = Literal["float32", "float16"]  # precision of vectors on disk
StoredVectors = NDArray[np.float32] | NDArray[np.float16]


_LARGEST_PARAM = 2**31 - 1  # more lists or candidates than any index has


class Hits(NamedTuple):
    """Results of a search for Q queries: rows int64 and scores float32, both of shape (Q, k).

    Each query's results are sorted by descending score; equal scores are sorted by ascending row. An unused slot has row -1 and score
    -inf.
    """

    rows: Rows
    scores: Scores


def empty_hits(n_queries: int, k: int) -> Hits:
    """Return results with unused slots only, shape (n_queries, k)."""
    return Hits(np.full((n_queries, k), NO_ROW, dtype=np.int64), np.full((n_queries, k), -np.inf, dtype=np.float32))


class EncodesTexts(Protocol):
    """An object that encodes queries and passages as vectors, whose inner product is the similarity; threads may share it."""

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        ...


class Encoder(EncodesTexts, Protocol):
    """Encoder of texts as float32 vectors of ``dim`` components."""

    dim: int


@options
class SearchParams:
    """Per-request parameters of an approximate search; None means the index's default.

    Attributes:
        nprobe: number of lists to search (inverted file).
        ef_search: length of the candidate list of a graph search (HNSW); at least k is used.
        refine: number of candidates to rescore exactly from the vectors, for each of the k results; 0: no rescoring.
        scope: the rows that may be returned, by any kind of index and retriever; None: all rows.
    """

    nprobe: Annotated[int | None, Field(ge=1, le=_LARGEST_PARAM)] = None
    ef_search: Annotated[int | None, Field(ge=1, le=_LARGEST_PARAM)] = None
    refine: Annotated[int | None, Field(ge=0, le=_LARGEST_PARAM)] = None
    scope: Scope | None = None

    def overrides(self) -> dict[str, int]:
        """Return the parameters that override the index's defaults, by name; the scope is none of them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "scope"}
        return {name: value for name, value in values.items() if value is not None}


DEFAULT_PARAMS = SearchParams()


class SearchParam(NamedTuple):
    """A search parameter of an index: its default and its largest value."""

    default: int
    maximum: int


class VectorIndex(Protocol):
    """Index of the vectors of a corpus, searched for the largest inner products with query vectors.

    Attributes:
        dim: number of components of a vector.
        placement: devices of the index.
    """

    dim: int
    placement: Placement

    @property
    def parameters(self) -> Mapping[str, SearchParam]:
        """Search parameters by name; empty for exact search."""
        ...

    def __len__(self) -> int:
        """Return the number of rows of the corpus."""
        ...

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows of the parameters' scope for each of the (Q, dim) query vectors; parameters that it lacks are ignored."""
        ...


class LexicalIndex(Protocol):
    """Index of the terms of a corpus, searched for the terms of queries."""

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> Hits:
        """Return the k best rows, of all or of a scope, for each query; raises ``InputError`` if this kind of index takes no scope."""
        ...

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return each query's search scores for its rows, which must ascend; the score of a row without a term of the query is -inf.

        Raises:
            InputError: this kind of index cannot rescore rows.
        """
        ...


def check_k(k: int) -> None:
    """Raise ``ValueError`` unless ``k``, the number of results, is at least 1."""
    if k < 1:
        raise ValueError(f"k is {k}: ask for at least one result")


def validate_queries(vectors: Vectors, dim: int) -> Vectors:
    """Return query vectors as a contiguous float32 array of shape (Q, dim).

    Raises:
        ValueError: the shape is wrong, or a component is not finite.
    """
    queries = np.ascontiguousarray(vectors, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"query vectors of shape {np.shape(vectors)} do not fit an index of dimension {dim}")
    if not np.isfinite(queries).all():
        raise ValueError(f"query vector {int(np.argwhere(~np.isfinite(queries))[0, 0])} has components that are not finite")
    return queries

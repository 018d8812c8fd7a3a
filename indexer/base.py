"""Types shared by all indexes and encoders: arrays, ``Hits`` and three protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from wikidx.corpora.passage import Passage
from wikidx.corpora.store import Rows
from wikidx.corpora.validation import options

Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]
Stored = Literal["float32", "float16"]  # precision of vectors on disk
StoredVectors = NDArray[np.float32] | NDArray[np.float16]

NO_ROW = -1

_LARGEST_PARAM = 2**31 - 1  # more lists or candidates than any index has


class Hits(NamedTuple):
    """Results of a search for Q queries: rows int64 and scores float32, both of shape (Q, k).

    Each line is sorted by descending score, then ascending row; unused places have row -1 and score -inf.
    """

    rows: Rows
    scores: Scores


def no_hits(n_queries: int, k: int) -> Hits:
    """Return empty results, shape (n_queries, k): the start of a search."""
    return Hits(np.full((n_queries, k), NO_ROW, dtype=np.int64), np.full((n_queries, k), -np.inf, dtype=np.float32))


class Encoder(Protocol):
    """Turns texts into float32 vectors of ``dim`` components whose inner product is the similarity."""

    dim: int

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim)."""
        ...

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim)."""
        ...


@options
class SearchParams:
    """Per-request parameters of an approximate search; None means the index's default.

    Attributes:
        nprobe: number of lists to search (inverted file).
        ef_search: candidates kept while walking the graph (HNSW); at least k are kept.
        refine: candidates for each result that are rescored exactly from the vectors; 0 for none.
    """

    nprobe: Annotated[int | None, Field(ge=1, le=_LARGEST_PARAM)] = None
    ef_search: Annotated[int | None, Field(ge=1, le=_LARGEST_PARAM)] = None
    refine: Annotated[int | None, Field(ge=0, le=_LARGEST_PARAM)] = None

    def given(self) -> dict[str, int]:
        """Return the parameters that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


DEFAULT_PARAMS = SearchParams()


class SearchParam(NamedTuple):
    """A search parameter of an index: its default and its largest value."""

    default: int
    largest: int


class Placement(NamedTuple):
    """Devices that hold the vectors, by torch's names, and the reason in one line for the user."""

    devices: tuple[str, ...]
    reason: str


ON_CPU = Placement(("cpu",), "exact search on the CPU")


class VectorIndex(Protocol):
    """Finds the rows whose vectors have the largest inner product with a query vector.

    Attributes:
        dim: components of a vector.
        placement: its devices, and the reason for them.
    """

    dim: int
    placement: Placement

    @property
    def parameters(self) -> Mapping[str, SearchParam]:
        """Search parameters by name; empty for exact search."""
        ...

    def __len__(self) -> int:
        """Number of rows of the corpus."""
        ...

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors; parameters that it lacks are ignored."""
        ...


class LexicalIndex(Protocol):
    """Finds rows by the terms of a query."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best rows for each query."""
        ...

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return, for each query, the scores of given rows, ascending, as in a search; -inf for a row that no search would return.

        Raises:
            InputError: this kind of index does not support it.
        """
        ...


def check_k(k: int) -> None:
    """Raise ``ValueError`` unless ``k`` is a valid number of results."""
    if k < 1:
        raise ValueError(f"k is {k}: ask for at least one result")


def checked_queries(vectors: Vectors, dim: int) -> Vectors:
    """Return query vectors as a contiguous float32 array of shape (Q, dim).

    Raises:
        ValueError: wrong shape, or a component that is not finite.
    """
    queries = np.ascontiguousarray(vectors, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"query vectors of shape {np.shape(vectors)} do not fit an index of dimension {dim}")
    if not np.isfinite(queries).all():
        raise ValueError(f"query vector {int(np.argwhere(~np.isfinite(queries))[0, 0])} has components that are not finite")
    return queries

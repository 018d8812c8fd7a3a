"""Queries that are vectors, for vectors that users import without an encoder (``none``)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors

_PREFIX = "data:application/x-float32;base64,"  # nobody types it, unlike "vector:"


def vector_query(vector: ArrayLike) -> str:
    """Return a query vector as the text that ``GivenVectors`` reads: its float32 components in base64.

    Raises:
        ValueError: the vector has another number of dimensions than one, or a component that is no finite number.
    """
    try:
        with np.errstate(over="ignore"):  # infinity, which is refused
            components = np.asarray(vector, dtype="<f4")
    except OverflowError as error:  # an integer beyond all floats
        raise ValueError(f"a query vector has a component that is too large: {error}") from error
    if components.ndim != 1 or not len(components) or not np.isfinite(components).all():
        raise ValueError(f"a query vector has one dimension of finite numbers, not the shape {components.shape} of {vector!r:.60}")
    return _PREFIX + base64.b64encode(components.tobytes()).decode()


def to_query(query: Any) -> Any:  # noqa: ANN401 - whatever a caller gives
    """Return a vector, an array, a tensor or a list of finite numbers, as ``vector_query`` does, and anything else unchanged."""
    if isinstance(query, np.ndarray) or (isinstance(query, list) and all(type(number) in (int, float) for number in query)):
        with suppress(ValueError):
            return vector_query(query)
    with suppress(AttributeError, TypeError, ValueError, RuntimeError):  # no tensor, or one without numbers
        return vector_query(query.detach().float().cpu().numpy())
    return query


class QueriesRefused(InputError):
    """Queries that a retriever cannot search, with their reasons; ``dim`` is not 0 if it needs vectors of so many components."""

    def __init__(self, reasons: Mapping[str, str], dim: int = 0) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons, self.dim = reasons, dim


def check_texts(queries: Iterable[str], reader: str) -> None:
    """Raise ``QueriesRefused`` for vectors among the queries of a retriever or reranker of texts."""
    reason = f"a query is a vector, and {reader} reads texts: give a text, or search vectors imported with '--encoder none'"
    if reasons := {query: reason for query in queries if query.startswith(_PREFIX)}:
        raise QueriesRefused(reasons)


class GivenVectors:
    """Encoder of queries that are vectors of ``dim`` components, written by ``vector_query``."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim); raises ``QueriesRefused`` for texts and for other vectors."""
        read = [self._read(query) for query in queries]
        reasons = {query: reason for query, reason in zip(queries, read, strict=True) if isinstance(reason, str)}
        if reasons:
            raise QueriesRefused(reasons, self.dim)
        return np.stack([vector for vector in read if not isinstance(vector, str)])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Raise ``InputError``: no passage can be encoded."""
        raise InputError("vectors of 'none' have no encoder of passages")

    def _read(self, query: str) -> Vectors | str:
        """Return the vector of a query, or the reason why it has none."""
        if not query.startswith(_PREFIX):
            return f"{query!r:.60} is a text, and vectors of 'none' have no encoder: a query is a vector of {self.dim} components"
        try:
            vector = np.frombuffer(base64.b64decode(query.removeprefix(_PREFIX), validate=True), dtype="<f4")
        except (binascii.Error, ValueError) as error:
            return f"{query!r:.60} is no vector in base64: {error}"
        if len(vector) != self.dim or not np.isfinite(vector).all():
            return f"a query vector of {len(vector)} components, or with one that is not finite: {self.dim} are needed"
        return vector

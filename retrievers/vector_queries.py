"""Queries that are vectors, for vectors that users import without an encoder (``none``)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors

_PREFIX = "vector:"


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
    """Return a vector, an array or a list of numbers, as ``vector_query`` does, and anything else unchanged."""
    is_vector = isinstance(query, np.ndarray) or (isinstance(query, list) and all(type(number) in (int, float) for number in query))
    return vector_query(query) if is_vector else query


class TextRefused(InputError):
    """A query is a text, and vectors without an encoder have ``dim`` components."""

    def __init__(self, message: str, dim: int = 0) -> None:
        super().__init__(message)
        self.dim = dim


class GivenVectors:
    """Encoder of queries that are vectors of ``dim`` components, written by ``vector_query``."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), dim); raises ``InputError`` for a text."""
        return np.stack([self._read(query) for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Raise ``InputError``: no passage can be encoded."""
        raise InputError("vectors of 'none' have no encoder of passages")

    def _read(self, query: str) -> Vectors:
        if not query.startswith(_PREFIX):
            message = f"{query!r:.60} is a text, and vectors of 'none' have no encoder: a query is a vector of {self.dim} components"
            raise TextRefused(message, self.dim)
        try:
            vector = np.frombuffer(base64.b64decode(query.removeprefix(_PREFIX), validate=True), dtype="<f4")
        except (binascii.Error, ValueError) as error:
            raise InputError(f"{query!r:.60} is no vector in base64: {error}") from error
        if len(vector) != self.dim or not np.isfinite(vector).all():
            raise InputError(f"a query vector of {len(vector)} components, or with one that is not finite: {self.dim} are needed")
        return vector

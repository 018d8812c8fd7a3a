"""Kinds of index by the user's own code: plug-ins, whose functions are told by their file and whose hits are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, running
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, NO_ROW, Hits, LexicalIndex, Scores, SearchParams, VectorIndex, Vectors
from wikidx.indexer.scope import Scope

from .kinds import Estimate, IndexKind


def plugged_kind(plugged: PlugIn) -> IndexKind[Any, Any]:
    """Return the kind of index of a plug-in, whose functions raise ``InputError`` if their code fails or returns something else."""
    kind: IndexKind[Any, Any] = plugged.instance_of(IndexKind, "a kind of index is a wikidx.IndexKind")

    def guarded(name: str, returned: Any) -> Callable[..., Any]:  # noqa: ANN401 - a class, or several
        function = getattr(kind, name)

        @wraps(function)
        def call(*arguments: Any) -> Any:  # noqa: ANN401
            with running(plugged, f"in '{name}'"):
                result = function(*arguments)
            if returned is not None and not isinstance(result, returned):
                raise InputError(f"'{name}' of {plugged.reference} returns a {type(result).__name__}, not a {returned.__name__}")
            return result

        return call

    opened, wrapper = guarded("open", None), PluggedVectorIndex if kind.source == "vectors" else PluggedLexicalIndex
    return replace(
        kind,
        name=plugged.name,
        parameters=guarded("parameters", Mapping),
        write=guarded("write", Mapping),
        estimate=guarded("estimate", Estimate),
        open=lambda *arguments: wrapper(plugged, opened(*arguments)),
    )


class PluggedVectorIndex:
    """An open index over vectors, whose hits are checked."""

    def __init__(self, plugged: PlugIn, index: VectorIndex) -> None:
        self._plugged, self._index = plugged, index
        with running(plugged, "in its open index"):
            self.dim, self.placement, self.parameters = index.dim, index.placement, index.parameters
            self._n_rows = len(index)

    def __len__(self) -> int:
        return self._n_rows

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best rows for each of the (Q, dim) query vectors."""
        with running(self._plugged, f"at a search for {len(vectors)} vectors"):
            hits = self._index.search(vectors, k, params)
        return _checked(self._plugged, hits, len(vectors), k, self._n_rows)


class PluggedLexicalIndex:
    """An open index over passages, whose hits are checked."""

    def __init__(self, plugged: PlugIn, index: LexicalIndex) -> None:
        self._plugged, self._index = plugged, index

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> Hits:
        """Return the k best rows for each query."""
        with running(self._plugged, f"at a search for {len(queries)} queries"):
            hits = self._index.search(queries, k, scope)
        return _checked(self._plugged, hits, len(queries), k)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return each query's scores for its rows."""
        with running(self._plugged, f"when it rescores rows of {len(queries)} queries"):
            return self._index.rescore(queries, rows)


def _checked(plugged: PlugIn, hits: Hits, n_queries: int, k: int, n_rows: int | None = None) -> Hits:
    """Return hits; raise ``InputError`` unless they are as ``Hits`` says."""
    with running(plugged, "at its hits"):
        rows, scores = np.asarray(hits[0]), np.asarray(hits[1])
        shapes, types = {rows.shape, scores.shape}, (rows.dtype.name, scores.dtype.name)
        is_used = rows != NO_ROW
        faults = {
            f"shapes {rows.shape} and {scores.shape} instead of {(n_queries, k)}": shapes != {(n_queries, k)},
            f"numbers of {' and '.join(types)} instead of int64 and float32": types != ("int64", "float32"),
        }
        if not any(faults.values()):
            next_is_worse = (scores[:, :-1] > scores[:, 1:]) | ((scores[:, :-1] == scores[:, 1:]) & (rows[:, :-1] < rows[:, 1:]))
            faults = {
                "rows that do not exist": bool((rows < NO_ROW).any() or (n_rows is not None and rows.max(initial=NO_ROW) >= n_rows)),
                "scores of rows that are not finite": not np.isfinite(scores[is_used]).all(),
                "unused slots with another score than -inf": not np.isneginf(scores[~is_used]).all(),
                "another order than by descending score, then ascending row": not (next_is_worse | ~is_used[:, 1:]).all(),
            }
    if fault := next((fault for fault, is_there in faults.items() if is_there), None):
        raise InputError(f"the hits of {plugged.reference} have {fault}")
    return Hits(rows, scores)

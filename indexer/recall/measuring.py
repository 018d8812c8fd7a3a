"""Measurement of an index's recall against exact search, and of its speed, at several values of a search parameter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParam, SearchParams, VectorIndex, Vectors

DEPTHS = (1, 10, 100)
BATCH = 32  # queries per batch in timing
_MIN_S = 0.5  # minimum time of measuring a point's speed
_LARGEST_SWEPT = {"nprobe": 1024, "ef_search": 1024, "refine": 16}


class Point(NamedTuple):
    """Measurements of an index at one setting.

    Attributes:
        setting: the value of each search parameter.
        recall: for each depth k, the share of exact search's k rows that a search for k results returns.
        queries_per_s: speed at the largest k, in batches of ``BATCH``.
    """

    setting: Mapping[str, int]
    recall: Mapping[int, float]
    queries_per_s: float


def swept_parameter(parameters: Mapping[str, SearchParam]) -> str | None:
    """Return the parameter to vary: the first of nprobe, ef_search and refine that an index has; None if it has none of them."""
    return next((name for name in _LARGEST_SWEPT if name in parameters), None)


def settings(parameters: Mapping[str, SearchParam]) -> Iterator[SearchParams]:
    """Yield the settings to measure. The swept parameter has its default and powers of two; the others have their defaults."""
    name = swept_parameter(parameters)
    if name is None:
        yield DEFAULT_PARAMS
        return
    largest = min(parameters[name].maximum, _LARGEST_SWEPT[name])
    smallest = {"ef_search": 4, "refine": -1}.get(name, 0)  # smallest exponent of 2; -1 means the value 0
    values = {0 if exponent < 0 else 1 << exponent for exponent in range(smallest, largest.bit_length())}
    for value in sorted({*values, parameters[name].default}):
        yield SearchParams(**{name: value})


def measure_settings(index: VectorIndex, queries: Vectors, exact: Hits) -> Iterator[Point]:
    """Yield a point for each setting of an index.

    Args:
        index: index over the same rows as exact search.
        queries: float32, shape (Q, dim).
        exact: results of exact search for the queries, at the largest depth.
    """
    depth = exact.rows.shape[1]
    for params in settings(index.parameters):
        recalls = {k: recall(index.search(queries, k, params), exact, k) for k in DEPTHS if k <= depth}
        overrides = params.overrides()
        setting = {name: overrides.get(name, param.default) for name, param in index.parameters.items()}

        def search(vectors: Vectors, params: SearchParams = params) -> object:
            return index.search(vectors, depth, params)

        yield Point(setting, recalls, queries_per_s(search, queries))


def recall(hits: Hits, exact: Hits, k: int) -> float:
    """Return the share of the first k rows in ``exact`` that are among the first k rows in ``hits``, over all queries."""
    relevant = [set(line[line >= 0].tolist()) for line in exact.rows[:, :k]]
    n_found = sum(len(rows.intersection(line.tolist())) for rows, line in zip(relevant, hits.rows[:, :k], strict=True))
    return n_found / max(1, sum(map(len, relevant)))


def queries_per_s(search: Callable[[Vectors], object], queries: Vectors) -> float:
    """Return the queries per second in batches of ``BATCH``. All queries are searched, repeatedly for at least half a second."""
    batches = np.array_split(queries, max(1, len(queries) // BATCH))
    n_done, started = 0, time.perf_counter()
    while True:
        for batch in batches:
            search(batch)
            n_done += len(batch)
        seconds = time.perf_counter() - started
        if seconds >= _MIN_S:
            return n_done / seconds

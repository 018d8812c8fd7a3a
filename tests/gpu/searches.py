"""Made searches of several kinds, and their comparison with products in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.machine.fit import Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Hits, Stored, Vectors
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.runtimes.cli.check_gpu import SEARCH_ALLOWED, Difference, largest_difference

Scores64 = NDArray[np.float64]

_SAMPLED = 8  # queries of a batch that are compared
_BLOCK_ROWS = 65_536
_EDGES = (0, 127, 128, 16_383, 16_384)  # rows next to the edge of a block of scores, and of a copied block


class Case(NamedTuple):
    """A search.

    "ties" has each vector ten times, "extremes" queries of zeros and of lengths about 1e30 and 1e-30, "missing" a tenth of the rows and the
    first and last without a vector, "edges" queries equal to vectors next to an edge of a block, "halves" queries that are float16,
    "shards" two shards on one device, and "all GPUs" one on each.
    """

    n_rows: int
    dim: int
    k: int
    n_queries: int
    kind: Literal["random", "ties", "extremes", "missing", "edges", "halves", "shards", "all GPUs"] = "random"

    def __str__(self) -> str:
        return f"{self.kind}, {self.n_rows:,} × {self.dim}, {self.n_queries:,} queries, k {self.k:,}"


class MadeSearch(NamedTuple):
    """The data of a case: ``distinct`` vectors, float32 or float16, the number of the vector of each row, queries, missing rows."""

    distinct: Vectors
    numbers: Rows
    queries: Vectors
    missing: Rows

    def exact_scores(self, queries: Rows) -> Scores64:
        """Return the float64 products of some queries with all rows, -inf for missing ones; equal vectors have equal bits."""
        wide = self.queries[queries].astype(np.float64)
        starts = range(0, len(self.distinct), _BLOCK_ROWS)
        products = np.concatenate([wide @ self.distinct[start : start + _BLOCK_ROWS].astype(np.float64).T for start in starts], axis=1)
        scores: Scores64 = products[:, self.numbers]
        scores[:, self.missing] = -np.inf
        return scores

    def scales(self, queries: Rows) -> Scores64:
        """Return the length of each query times that of the longest vector; 1 for a query of zeros."""
        longest = max(np.linalg.norm(rows.astype(np.float64), axis=1).max() for rows in np.array_split(self.distinct, 64) if len(rows))
        scales: Scores64 = longest * np.linalg.norm(self.queries[queries].astype(np.float64), axis=1)
        return np.where(scales == 0, 1.0, scales)


def compare_case(case: Case, stored: Stored, devices: tuple[str, ...]) -> Iterator[Difference]:
    """Compare a search over shards on some devices with products in float64."""
    made = make_search(case, stored, np.random.default_rng(case.n_rows + case.n_queries))
    index = ExactIndex(made.distinct[made.numbers], missing=made.missing, placement=Placement(devices, "compared"))
    hits = index.search(made.queries, case.k)
    queries = np.unique(np.linspace(0, case.n_queries - 1, _SAMPLED).astype(np.int64))
    sampled = Hits(hits.rows[queries], hits.scores[queries])
    exact = made.exact_scores(queries)
    yield Difference(str(case), largest_difference(sampled, exact, made.scales(queries)), SEARCH_ALLOWED[stored])
    if case.kind == "ties":
        yield Difference("places of rows with equal vectors, wrong ones", misplaced_ties(sampled, exact), 0)
        yield Difference("scores of equal vectors, as bits", largest_spread(sampled, made.numbers), 0)


def make_search(case: Case, stored: Stored, generator: np.random.Generator) -> MadeSearch:
    """Return the data of a case."""
    n_distinct = max(1, case.n_rows // 10) if case.kind == "ties" else case.n_rows
    distinct = generator.standard_normal((n_distinct, case.dim), dtype=np.float32).astype(stored)
    queries = generator.standard_normal((case.n_queries, case.dim), dtype=np.float32)
    missing = np.empty(0, dtype=np.int64)
    if case.kind == "extremes":
        scales = np.array([0, 1e30, 1e-30, 1], dtype=np.float32)
        queries *= scales[np.arange(case.n_queries) % len(scales), None]
    elif case.kind == "missing":
        is_missing = generator.random(case.n_rows) < 0.1
        is_missing[[0, -1]] = True
        missing = np.flatnonzero(is_missing)
    elif case.kind == "edges":
        edges = [row for row in (*_EDGES, case.n_rows - 1) if row < case.n_rows]
        queries = distinct[np.resize(edges, case.n_queries)].astype(np.float32)
    elif case.kind == "halves":
        queries = queries.astype(np.float16).astype(np.float32)
    return MadeSearch(distinct, np.arange(case.n_rows) % n_distinct, queries, missing)


def misplaced_ties(hits: Hits, exact: Scores64) -> int:
    """Return the number of places whose row has exactly the score that belongs there, but is not the lowest such row left."""
    expected = np.argsort(-exact, axis=1, kind="stable")[:, : hits.rows.shape[1]]
    has_equal_score = np.take_along_axis(exact, hits.rows, axis=1) == np.take_along_axis(exact, expected, axis=1)
    return int((has_equal_score & (hits.rows != expected)).sum())


def largest_spread(hits: Hits, numbers: Rows) -> float:
    """Return the largest difference of the scores of rows with equal vectors, for the same query."""
    largest = 0.0
    for rows, scores in zip(hits.rows, hits.scores, strict=True):
        _, groups = np.unique(numbers[rows], return_inverse=True)
        high, low = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        np.maximum.at(high, groups, scores)
        np.minimum.at(low, groups, scores)
        largest = max(largest, float((high - low)[groups].max()))
    return largest

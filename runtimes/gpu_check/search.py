"""Exact search by torch against products in float64, and large products against smaller ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.machine.fit import Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import NO_ROW, Hits, Stored, Vectors
from wikidx.indexer.indexes.exact.index import ExactIndex

from .task import Task

Scores64 = NDArray[np.float64]

# Differences are relative to the length of the query times that of the longest vector. TF32 has some 2e-5 at 24 components.
_ALLOWED: Mapping[Stored, float] = {"float32": 2e-6, "float16": 5e-6}
_SAMPLED = 8  # queries of a batch that are compared
_BLOCK_ROWS = 65_536
_EDGES = (0, 127, 128, 16_383, 16_384)  # rows next to the edge of a block of scores, and of a copied block
_TERMS = 1 << 31
_N_TILES = 8


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


def check_search(task: Task, *, stored: Stored, cases: Sequence[Sequence[Any]]) -> None:
    """Compare searches over made vectors with products in float64.

    The difference of a case is the largest of a returned score from the exact score of its row, and of the exact score of the row in a
    place from that of the row that belongs there. Missing, wrong and repeated rows have no difference: they fail.
    """
    for seed, values in enumerate(cases):
        case = Case(*values)
        devices = _devices(task, case)
        if not devices:
            task.note(f"{case.kind}: there are not several")
            continue
        made = make_search(case, stored, np.random.default_rng(seed))
        index = ExactIndex(made.distinct[made.numbers], missing=made.missing, placement=Placement(devices, "checked"))
        hits = index.search(made.queries, case.k)
        queries = np.unique(np.linspace(0, case.n_queries - 1, _SAMPLED).astype(np.int64))
        sampled = Hits(hits.rows[queries], hits.scores[queries])
        exact = made.exact_scores(queries)
        task.check(str(case), largest_difference(sampled, exact, made.scales(queries)), _ALLOWED[stored])
        if case.kind == "ties":
            task.check("ties: places of rows with equal vectors, wrong ones", misplaced_ties(sampled, exact), 0)
            task.check("ties: scores of equal vectors, as bits", largest_spread(sampled, made.numbers), 0)


def check_without_tf32(task: Task, *, cases: Sequence[Sequence[Any]]) -> None:
    """Compare searches in float32 where the environment switches TF32 on, as NVIDIA's containers do: idx switches it off."""
    import torch

    matmul = torch.backends.cuda.matmul
    task.check("TF32 is on before the first search (0: yes)", float(not matmul.allow_tf32), 0)
    check_search(task, stored="float32", cases=cases)
    task.check("TF32 is off after it (0: yes)", float(matmul.allow_tf32), 0)


def make_search(case: Case, stored: Stored, generator: np.random.Generator) -> MadeSearch:
    """Return the data of a case."""
    n_distinct = max(1, case.n_rows // 10) if case.kind == "ties" else case.n_rows
    distinct = generator.standard_normal((n_distinct, case.dim), dtype=np.float32).astype(stored)
    numbers = np.arange(case.n_rows) % n_distinct
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
    return MadeSearch(distinct, numbers, queries, missing)


def _devices(task: Task, case: Case) -> tuple[str, ...]:
    """Return the device of each shard; none if the case needs several GPUs, and there is one. On a CPU, torch searches too."""
    import torch

    if case.kind == "all GPUs":
        n_gpus = torch.cuda.device_count() if task.on_gpu else 0
        return tuple(f"cuda:{number}" for number in range(n_gpus)) if n_gpus > 1 else ()
    name = "cuda:0" if task.on_gpu else "cpu:0"  # "cpu" alone means the search without torch
    return (name,) * (2 if case.kind == "shards" else 1)


def largest_difference(hits: Hits, exact: Scores64, scales: Scores64) -> float:
    """Return the largest difference of hits from exact scores, relative to scales; infinity if rows are missing, wrong or repeated."""
    k = hits.rows.shape[1]
    best = -np.sort(-exact, axis=1)[:, :k]
    is_filled = np.zeros(hits.rows.shape, dtype=bool)
    is_filled[:, : best.shape[1]] = np.isfinite(best)
    if ((hits.rows == NO_ROW) == is_filled).any() or any(len(set(rows)) < n for rows, n in _filled(hits, is_filled)):
        return np.inf
    found = np.take_along_axis(exact, np.where(is_filled, hits.rows, 0), axis=1)
    best = np.pad(best, ((0, 0), (0, k - best.shape[1])))
    differences = np.where(is_filled, np.maximum(abs(hits.scores - found), abs(best - found)), 0) / scales[:, None]
    return float(differences.max(initial=0))


def _filled(hits: Hits, is_filled: NDArray[np.bool_]) -> list[tuple[list[int], int]]:
    return [(rows[filled].tolist(), int(filled.sum())) for rows, filled in zip(hits.rows, is_filled, strict=True)]


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


def check_wide_product(task: Task, *, n_rows: int, dim: int) -> None:
    """Compare one product with more than 2^31 terms in a matrix, where cuBLAS has failed (pytorch#17897), with products of tiles.

    idx multiplies at most 2^31 at a time: the one product is recorded, and the tiles are checked against float64.
    """
    import torch

    from .machine import fill_random, half_product

    if task.on_gpu and torch.cuda.mem_get_info(task.device)[0] < 2.5 * n_rows * dim + (4 << 30):
        task.note(f"a product with {n_rows:,} × {dim} float16 needs {2 * n_rows * dim / 1e9:.0f} GB free on the GPU")
        return
    torch.manual_seed(1)
    rows, queries = fill_random(task.device, n_rows, dim), fill_random(task.device, 4, dim)
    tile = -(-n_rows // _N_TILES)
    scores = torch.cat([half_product(queries, part) for part in torch.split(rows, tile)], dim=1)
    whole = half_product(queries, rows)
    scale = float(queries.float().norm(dim=1).max() * rows[:_BLOCK_ROWS].float().norm(dim=1).max())
    sampled = torch.cat([torch.arange(0, n_rows, max(1, n_rows // 4_096)), torch.arange(n_rows - 256, n_rows)]).to(task.device)
    exact = queries.double() @ rows[sampled].double().T
    task.check(
        f"{_N_TILES} tiles of {tile:,} × {dim}, {tile * dim / _TERMS:.2g} × 2^31 terms", _most(scores[:, sampled] - exact) / scale, 5e-6
    )
    name = f"one product with {n_rows:,} × {dim}, {n_rows * dim / _TERMS:.2g} × 2^31 terms"
    task.record(name, {"difference from tiles": _most(whole - scores) / scale, "used by idx": "no" if n_rows * dim >= _TERMS else "yes"})


def _most(differences: Any) -> float:  # noqa: ANN401 - torch may be absent
    return float(differences.abs().max())

"""Agreement of engines: an engine's results are compared with an exact reference searched at a greater depth.

Rows that share the k-th score are interchangeable: every engine may choose which of them are among the k best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.rounds import Setting, Workers
from wikidx.indexer.base import Hits

REFERENCE = "lucene"  # Lucene's raw scores, at any depth


class Agreement(NamedTuple):
    """Agreement of an engine with the reference.

    Attributes:
        same_sets: share of the questions with the reference's k rows; rows tied at its k-th score may differ.
        same_rows: share of the reference's k rows that the engine returns, over all questions.
        score_difference: largest relative difference between the two scores of a row that both return.
    """

    same_sets: float
    same_rows: float
    score_difference: float


def search_with_ties(search: Callable[[int], Hits], k: int) -> Hits:
    """Return the results of ``search`` at a depth beyond k that includes, for each question, all rows of the k-th score."""
    depth = 2 * k
    while True:
        found = search(depth)
        ends = found.scores[:, -1]
        if ((ends < found.scores[:, k - 1]) | np.isneginf(ends)).all():
            return found
        depth *= 2


def agreement(found: Hits, reference: Hits, k: int) -> Agreement:
    """Compare an engine's results for Q questions, rows and scores of shape (Q, at most k), with the deeper reference."""
    n_same_sets = n_shared = n_wanted = 0
    difference = 0.0
    for line in range(len(reference.rows)):
        expected = _scores(reference.rows[line], reference.scores[line])
        mine = _scores(found.rows[line], found.scores[line])
        n_best = min(k, len(expected))
        last = float(reference.scores[line][n_best - 1]) if n_best else 0.0
        n_above = sum(score > last for score in expected.values())
        n_mine_above = sum(expected.get(row, -np.inf) > last for row in mine)
        n_tied = sum(expected.get(row) == last for row in mine)
        n_right = n_mine_above + min(n_tied, n_best - n_above)
        n_same_sets += n_right == n_best == len(mine)
        n_shared, n_wanted = n_shared + n_right, n_wanted + n_best
        for row in mine.keys() & expected.keys():
            difference = max(difference, abs(mine[row] - expected[row]) / expected[row])
    return Agreement(n_same_sets / max(1, len(reference.rows)), n_shared / max(1, n_wanted), difference)


def agreements(workers: Workers, ks: Sequence[int], n: int) -> dict[Setting, Agreement]:
    """Compare each worker's results for the first n questions with the reference; empty if the reference is not among them."""
    reference = next((worker for (engine, _), worker in workers.items() if engine == REFERENCE), None)
    if reference is None:
        return {}
    found: dict[Setting, Agreement] = {}
    for k in ks:
        best = search_with_ties(lambda depth: reference.hits(n, depth), k)
        for (engine, threads), worker in workers.items():
            found[Setting(engine, threads, k)] = agreement(worker.hits(n, k), best, k)
    return found


def _scores(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> dict[int, float]:
    """Return the scores of the returned rows."""
    return {row: score for row, score in zip(rows.tolist(), scores.tolist(), strict=True) if row >= 0}

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

REFERENCES = ("lucene", "bm25", "pyserini")  # engines with Lucene's scores, at any depth; the first one has them raw
_RELATIVE, _ABSOLUTE = 1e-5, 5.1e-5  # Pyserini rounds to 4 decimals


class Agreement(NamedTuple):
    """Agreement of an engine with the reference.

    Attributes:
        same_sets: share of the questions with the reference's k rows; rows tied at its k-th score may differ.
        same_rows: share of the reference's k rows that the engine returns, over all questions.
        score_difference: largest relative difference between the two scores of a row that both return.
        exact: share of the questions whose k scores are those of a search that leaves nothing out: the engine's own exhaustive one; for
            engines with Lucene's scores, another one of these. None if there is neither.
    """

    same_sets: float
    same_rows: float
    score_difference: float
    exact: float | None = None


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


def share_of_equal_scores(found: Hits, expected: Hits) -> float:
    """Return the share of the questions whose scores are equal, whichever rows have them; missing ones count as -inf."""
    mine, wanted = (-np.sort(-hits.scores, axis=1) for hits in (found, expected))
    mine, wanted = (
        np.pad(part, ((0, 0), (0, max(mine.shape[1], wanted.shape[1]) - part.shape[1])), constant_values=-np.inf) for part in (mine, wanted)
    )
    return float(np.isclose(mine, wanted, rtol=_RELATIVE, atol=_ABSOLUTE).all(axis=1).mean())


def agreements(workers: Workers, ks: Sequence[int], n: int) -> dict[Setting, Agreement]:
    """Compare each worker's results for the first n questions with the reference; empty if no reference is among them."""
    of_engine = {engine: worker for (engine, _), worker in workers.items()}
    references = {engine: of_engine[engine] for engine in REFERENCES if engine in of_engine}
    if not references:
        return {}
    reference = next(iter(references.values()))
    found: dict[Setting, Agreement] = {}
    for k in ks:
        best = search_with_ties(lambda depth, k=k: reference.hits(n, depth), k)  # type: ignore[misc]
        others = {engine: worker.hits(n, k) for engine, worker in references.items()}
        for (engine, threads), worker in workers.items():
            mine = worker.hits(n, k)
            whole = next((hits for other, hits in others.items() if other != engine), None) if engine in others else worker.exhaustive(n, k)
            exact = None if whole is None else share_of_equal_scores(mine, whole)
            found[Setting(engine, threads, k)] = agreement(mine, best, k)._replace(exact=exact)
    return found


def _scores(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> dict[int, float]:
    """Return the scores of the returned rows."""
    return {row: score for row, score in zip(rows.tolist(), scores.tolist(), strict=True) if row >= 0}

"""Agreement of engines: an engine's results are compared with an exact reference searched at a greater depth; and answer recall.

Rows that share the k-th score are interchangeable: every engine may choose which of them are among the k best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.rounds import Workers
from benchmarks.processes import NAME
from wikidx.corpora.build import open_store
from wikidx.indexer.base import Hits
from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits
from wikidx.runtimes.evaluation.retrieval.rankings import hit_values

LUCENE_SCORES = ("bm25", "pyserini")  # the first one has them raw
REFERENCES = (*LUCENE_SCORES, "exact")  # engines that leave no row out, at any depth
RECALL_K, _RECALL_DEPTH = 20, 100
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


def agreements(workers: Workers, ks: Sequence[int], n: int) -> dict[tuple[str, int], Agreement]:
    """Compare each engine's results for the first n questions with the reference, by engine and k; empty if there is no reference."""
    of_engine = {engine: worker for (engine, _), worker in workers.items()}
    reference = next((of_engine[engine] for engine in REFERENCES if engine in of_engine), None)
    found: dict[tuple[str, int], Agreement] = {}
    for k in ks if reference else ():
        best = search_with_ties(lambda depth: reference.hits(n, depth), k)  # type: ignore[union-attr]
        hits = {engine: worker.hits(n, k) for engine, worker in of_engine.items()}
        for engine, worker in of_engine.items():
            others = [other for other in LUCENE_SCORES if other != engine and other in hits] if engine in LUCENE_SCORES else []
            whole = hits[others[0]] if others else worker.exhaustive(n, k)
            exact = None if whole is None else share_of_equal_scores(hits[engine], whole)
            found[engine, k] = agreement(hits[engine], best, k)._replace(exact=exact)
    return found


def recalls(workers: Workers, answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return R@20 of each engine in percent: questions with an answer among the first passages, as in ``idx eval retrieval``."""
    of_engine = {engine: worker for (engine, _), worker in workers.items()}
    return {engine: recall(best_rows(worker.hits(len(answers), _RECALL_DEPTH)), answers) for engine, worker in of_engine.items()}


def best_rows(hits: Hits) -> list[list[int]]:
    """Return the first rows of each question, best first; fewer if there are fewer results."""
    order = np.argsort(-hits.scores, axis=1, kind="stable")[:, :RECALL_K]
    rows = np.take_along_axis(hits.rows, order, axis=1)
    return [line[line >= 0].tolist() for line in rows]


def recall(rows: Sequence[Sequence[int]], answers: Sequence[Sequence[str]]) -> float:
    """Return R@20 in percent, of rows of passages, best first, and answers, any of which is right, for each question."""
    numbers = {row: number for number, row in enumerate(dict.fromkeys(row for line in rows for row in line))}
    texts = [passage.text for passage in open_store(NAME).get_many(list(numbers))]
    hits = answer_hits([[numbers[row] for row in line] for line in rows], texts, answers)
    return 100 * float(hit_values(hits, RECALL_K).mean())


def _scores(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> dict[int, float]:
    """Return the scores of the returned rows."""
    return {row: score for row, score in zip(rows.tolist(), scores.tolist(), strict=True) if row >= 0}

"""Answer recall: questions with an answer among the first passages, by DPR's ``has_answer`` as in ``idx eval retrieval``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits
from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits
from wikidx.runtimes.evaluation.retrieval.rankings import hit_values

K = 20


def best_rows(hits: Hits) -> list[list[int]]:
    """Return the first ``K`` rows of each question, best first; fewer if there are fewer results."""
    order = np.argsort(-hits.scores, axis=1, kind="stable")[:, :K]
    rows = np.take_along_axis(hits.rows, order, axis=1)
    return [line[line >= 0].tolist() for line in rows]


def recall(rows: Sequence[Sequence[int]], answers: Sequence[Sequence[str]], store: PassageStore) -> float:
    """Return R@20 in percent.

    Args:
        rows: of the passages, best first, for each question.
        answers: of each question, any of which is right.
        store: the passages.
    """
    distinct = list(dict.fromkeys(row for line in rows for row in line))
    number = {row: number for number, row in enumerate(distinct)}
    texts = [passage.text for passage in store.get_many(distinct)]
    hits = answer_hits([[number[row] for row in line] for line in rows], texts, answers)
    return 100 * float(hit_values(hits, K).mean())

"""Agreement of engines but for ties, answer recall, and ratios of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from benchmarks.engines.measuring import Results, search_rows
from benchmarks.engines.quality import agreement, best_rows, recall, search_with_ties, share_of_equal_scores
from benchmarks.engines.rounds import Rounds, Setting
from benchmarks.engines.worker import Build
from benchmarks.processes import NAME
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import NO_ROW, Hits


def hits(*lines: Sequence[tuple[int, float]]) -> Hits:
    """Return the hits of some questions, given as (row, score); shorter lines are filled up."""
    width = max(map(len, lines))
    filled = [[*line, *[(NO_ROW, -np.inf)] * (width - len(line))] for line in lines]
    rows, scores = ([[pair[which] for pair in line] for line in filled] for which in (0, 1))
    return Hits(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))


REFERENCE = hits([(5, 4.0), (2, 3.0), (7, 2.0), (8, 2.0), (9, 1.0)])


@pytest.mark.parametrize(
    ("found", "same_sets", "same_rows", "difference"),
    [
        (hits([(5, 4.0), (2, 3.0), (7, 2.0)]), 1, 1, 0),
        (hits([(5, 4.0), (2, 3.0), (8, 2.0)]), 1, 1, 0),  # another row of the third score
        (hits([(2, 4.5), (5, 4.0), (8, 2.0)]), 1, 1, 0.5),  # other scores
        (hits([(5, 4.0), (2, 3.0), (9, 1.0)]), 0, 2 / 3, 0),
        (hits([(5, 4.0), (7, 2.0), (8, 2.0)]), 0, 2 / 3, 0),  # of the third score only one can be among the best
        (hits([(5, 4.0), (2, 3.0), (7, 2.0), (8, 2.0)]), 0, 1, 0),
        (hits([(6, 4.0), (3, 3.0), (1, 2.0)]), 0, 0, 0),
    ],
)
def test_agreement_but_for_ties_at_rank_k(found: Hits, same_sets: float, same_rows: float, difference: float) -> None:
    assert agreement(found, REFERENCE, 3)[:3] == pytest.approx((same_sets, same_rows, difference))


def test_agreement_over_questions_that_find_little() -> None:
    reference = hits([(4, 2.0), (1, 1.0)], [], [(3, 5.0)])
    assert agreement(hits([(4, 2.0), (1, 1.0)], [], [(4, 5.0)]), reference, 4)[:3] == pytest.approx((2 / 3, 2 / 3, 0))


def test_equal_scores_are_counted_by_question() -> None:
    found, other = hits([(1, 3.0), (2, 2.0)], [(1, 5.0)], []), hits([(1, 3.00002), (7, 2.0)], [(1, 5.0), (4, 0.1)], [])
    assert share_of_equal_scores(found, found) == 1
    assert share_of_equal_scores(found, other) == pytest.approx(2 / 3)


def test_the_reference_is_asked_until_the_tie_at_rank_k_ends() -> None:
    scores = np.array([[3.0] + [2.0] * 20 + [1.0] * 20, [9.0, 8.0] + [1.0] * 2 + [-np.inf] * 37], dtype=np.float32)
    depths = []

    def search(depth: int) -> Hits:
        depths.append(depth)
        return Hits(np.zeros((2, depth), dtype=np.int64), scores[:, :depth])

    assert search_with_ties(search, 3).scores.shape == (2, 24)
    assert depths == [6, 12, 24]


def test_recall_is_that_of_the_first_twenty_by_score(build: Callable[..., PassageStore]) -> None:
    texts = ["the Nile flows north", "nothing here", "NILE!", "a nilometer", *["filler"] * 26]
    build([Passage(str(n), "Nile", text) for n, text in enumerate(texts)], name=NAME)  # a title does not count
    assert recall([[1, 0], [3, 1], [], [2]], [["Nile"], ["Nile"], ["Nile"], ["x", "nile"]]) == 50
    low_last = hits([*((row, 2.0) for row in range(1, 21)), (0, 1.0)], [(0, 1.0), (1, 2.0)])
    assert best_rows(low_last) == [list(range(1, 21)), [1, 0]]


def test_ratios_are_taken_round_by_round() -> None:
    rates = {"bm25": [100.0, 50.0, 400.0], "other": [50.0, 20.0, 100.0]}
    searches = {Setting(engine, 1, 10, 0): Rounds(100, of, of, [[1.0, 1.0, 1.0]] * 3) for engine, of in rates.items()}
    built = Build(1.0, 1, 1)
    ours, other = search_rows(Results({"bm25": built, "other": built}, {}, searches, {}, {}, {}))
    assert (ours["questions/s, best"], ours["median"]) == (400, 100)
    assert (ours["bm25 is × faster"], other["bm25 is × faster"]) == (1, 2.5)

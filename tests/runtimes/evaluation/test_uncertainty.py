"""Intervals and paired tests against scipy's, which draws the same resamples from the same seed and enumerates the same swaps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from wikidx.runtimes.evaluation.uncertainty import Bootstrap

SCORES = np.random.default_rng(5).random(200)
HITS = (np.random.default_rng(6).random(1000) < 0.3).astype(np.float64)


@pytest.mark.parametrize("values", [SCORES, HITS, np.r_[0.0, 1.0]], ids=["scores", "hits", "two"])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_the_interval_is_scipys_percentile_bootstrap(values: np.ndarray, level: float) -> None:
    found = Bootstrap(level, seed=3, n=500).interval(values)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=500, confidence_level=level, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), theirs.low, theirs.high), abs=1e-12)
    assert found.n == len(values)


def test_the_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    found = [Bootstrap(seed=run, n=300).interval((rng.random(300) < 0.4).astype(np.float64)) for run in range(400)]
    share = np.mean([one.low <= 0.4 <= one.high for one in found])
    assert 0.91 < share < 0.98  # 0.95, give or take what the percentile method and 400 draws allow


def test_draws_in_pieces_are_the_draws_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Bootstrap().interval(SCORES), Bootstrap().paired_test(SCORES, SCORES[::-1])
    monkeypatch.setattr("wikidx.runtimes.evaluation.uncertainty._MAX_DRAWS", 1400)  # seven resamples
    assert Bootstrap().interval(SCORES) == whole[0]
    # An odd number of one-byte draws leaves part of a random word unused: the test is another sample of the same distribution.
    assert Bootstrap().paired_test(SCORES, SCORES[::-1]).p == pytest.approx(whole[1].p, abs=0.03)


def test_what_is_not_defined_is_left_out_and_counted() -> None:
    some = np.where(np.arange(200) % 4 == 0, np.nan, SCORES)
    assert Bootstrap().interval(some) == Bootstrap().interval(some[~np.isnan(some)])
    assert Bootstrap().interval(some).n == 150
    nothing = Bootstrap().interval(np.array([np.nan, np.nan]))
    assert nothing.n == 0
    assert np.isnan(nothing[:3]).all()
    assert Bootstrap().interval(np.empty(0)).n == 0


def test_one_value_has_an_interval_without_width() -> None:
    assert Bootstrap().interval(np.array([0.25])) == (0.25, 0.25, 0.25, 1)
    assert Bootstrap().paired_test(np.array([0.75]), np.array([0.5])) == (0.25, 0.25, 0.25, 1.0, 1, 1, 0, 0)


@pytest.mark.parametrize("n", [2, 7, 13])
def test_p_of_few_questions_is_that_of_all_swaps(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.random(n), np.round(rng.random(n), 1)
    theirs = stats.permutation_test(
        (first, second), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert Bootstrap().paired_test(first, second).p == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 1), (9, 4), (0, 13)])
def test_p_of_hits_is_mcnemars_exact(wins: int, losses: int) -> None:
    first = np.r_[np.ones(wins), np.zeros(losses), np.ones(5), np.zeros(5)]
    second = np.r_[np.zeros(wins), np.ones(losses), np.ones(5), np.zeros(5)]
    found = Bootstrap().paired_test(first, second)
    assert found.p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0)
    assert (found.wins, found.losses, found.ties, found.n) == (wins, losses, 10, wins + losses + 10)


@pytest.mark.parametrize(("wins", "losses"), [(60, 40), (330, 300), (40, 5)])
def test_p_of_many_hits_is_mcnemars_up_to_the_draw(wins: int, losses: int) -> None:
    first, second = np.r_[np.ones(wins), np.zeros(losses)], np.r_[np.zeros(wins), np.ones(losses)]
    exact = stats.binomtest(wins, wins + losses).pvalue
    assert Bootstrap().paired_test(first, second).p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 10_000) + 1.1e-4)
    assert Bootstrap().paired_test(first, second).p > 0


def test_the_paired_interval_is_that_of_the_differences() -> None:
    first, second = np.random.default_rng(8).random((2, 80))
    first[3], second[7] = np.nan, np.nan
    found, of_differences = Bootstrap().paired_test(first, second), Bootstrap().interval(first - second)
    assert found[:3] == of_differences[:3]
    assert found.n == 78
    turned = Bootstrap().paired_test(second, first)
    assert (turned.difference, turned.wins, turned.losses, turned.p) == (-found.difference, found.losses, found.wins, found.p)


def test_runs_without_a_question_in_common_are_not_compared() -> None:
    found = Bootstrap().paired_test(np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
    assert np.isnan(found[:4]).all()
    assert found[4:] == (0, 0, 0, 0)
    with pytest.raises(ValueError, match="2 values cannot be paired with 1"):
        Bootstrap().paired_test(np.ones(2), np.ones(1))

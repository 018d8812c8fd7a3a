"""Confidence intervals of means over questions, and paired tests of two runs.

Interval     percentile bootstrap (Efron, 1979): the questions are resampled with replacement
PairedTest   bootstrap interval of the mean difference, and p-value of a randomisation test (Fisher, 1935)

The randomisation test swaps the values of the two runs at random for each question. For values of 0 and 1 it is McNemar's exact test.

NaN marks a value that is undefined for its question. The value is left out, together with its counterpart in a pair. ``n`` counts the
remaining values. If no values remain, all statistics are NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_MAX_DRAWS = 1 << 22  # maximum number of random draws in memory
_SWAPS = 10_000  # number of random assignments in the randomisation test; if fewer are possible, all are enumerated
_TIE = 1e-9  # relative tolerance of sums that differ by rounding only


class Interval(NamedTuple):
    """The mean of ``n`` values and the ends of its interval, in the unit of the values."""

    mean: float
    low: float
    high: float
    n: int


class PairedTest(NamedTuple):
    """The paired test of two runs on the same questions.

    Attributes:
        difference: mean of the first minus mean of the second, over the compared questions.
        low, high: bootstrap interval of the difference.
        p: two-sided p-value of the randomisation test.
        n: number of compared questions, on which both runs have a value.
        wins, losses, ties: numbers of questions on which the first run's value is higher, lower, equal.
    """

    difference: float
    low: float
    high: float
    p: float
    n: int
    wins: int
    losses: int
    ties: int


class Bootstrap(NamedTuple):
    """Parameters of resampling; identical values always yield identical intervals and p-values.

    Attributes:
        level: share of the resampled means inside an interval, between 0 and 1.
        seed: the seed of the resamples and of the randomisation test.
        n: number of resamples per interval, at least one.
    """

    level: float = 0.95
    seed: int = 0
    n: int = 1000

    def interval(self, values: FloatArray) -> Interval:
        """Return the mean of values with its percentile bootstrap interval.

        Args:
            values: one value per question, finite or NaN (undefined), shape ``(questions,)``.
        """
        values = values[~np.isnan(values)]
        if not len(values):
            return Interval(np.nan, np.nan, np.nan, 0)
        rng, rows = np.random.default_rng(self.seed), max(1, _MAX_DRAWS // len(values))
        sizes = [min(rows, self.n - done) for done in range(0, self.n, rows)]
        means = np.concatenate([values[rng.integers(0, len(values), (size, len(values)))].mean(axis=1) for size in sizes])
        low, high = np.quantile(means, [(1 - self.level) / 2, (1 + self.level) / 2])
        return Interval(float(values.mean()), float(low), float(high), len(values))

    def paired_test(self, first: FloatArray, second: FloatArray) -> PairedTest:
        """Compare two runs question by question.

        Args:
            first: values of the first run, finite or NaN (undefined), shape ``(questions,)``.
            second: values of the second run on the same questions, in the same order.

        Returns:
            The comparison. ``p`` is exact if fewer than 14 questions differ. Otherwise ``p`` is estimated from 10,000 random
            assignments of values to runs and the observed assignment, and is never 0.

        Raises:
            ValueError: the runs have different numbers of questions.
        """
        if first.shape != second.shape:
            raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
        differences = first - second
        differences = differences[~np.isnan(differences)]
        if not len(differences):
            return PairedTest(np.nan, np.nan, np.nan, np.nan, 0, 0, 0, 0)
        mean, low, high, n = self.interval(differences)
        wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
        return PairedTest(
            mean,
            low,
            high,
            _swap_p(differences[differences != 0], self.seed),
            n,
            wins,
            losses,
            n - wins - losses,
        )

    def note(self) -> str:
        """Return a description of the interval method for a report."""
        return f"{100 * self.level:g} % intervals, percentile bootstrap over questions, {self.n:,} resamples, seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Return the interval method as JSON values."""
        return {"level": self.level, "method": "percentile bootstrap", "resamples": self.n, "seed": self.seed}


def _swap_p(differences: FloatArray, seed: int) -> float:
    """Return the two-sided p-value: the share of sign assignments whose sum is at least as far from 0 as the observed sum."""
    n = len(differences)
    least = abs(differences.sum()) - _TIE * np.abs(differences).sum()
    if 2**n < _SWAPS:
        signs = 1 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((np.abs(signs @ differences) >= least).mean())
    rng, rows = np.random.default_rng(seed), max(1, _MAX_DRAWS // n)
    n_far = 0
    for done in range(0, _SWAPS, rows):
        signs = 1 - 2.0 * rng.integers(0, 2, (min(rows, _SWAPS - done), n), np.int8)
        n_far += int((np.abs(signs @ differences) >= least).sum())
    return (n_far + 1) / (_SWAPS + 1)

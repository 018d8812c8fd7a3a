"""The long table of an evaluation: run, question set, question, metric, value. Every report shows means by some of its columns.

The rows of one run and metric lie together as a ``Series``, an array over the questions. A series of a part of the questions, or of a step
of the searches, has NaN in place of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wikidx.runtimes.evaluation.outcomes import problem_masks
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval

METRIC, GROUP, SEARCH, COST, PROBLEM = "metrics", "groups", "searches", "costs", "problems"


@dataclass(frozen=True)
class Series:
    """The values of a metric, a cost or a problem for the questions of a run.

    Attributes:
        run, dataset: names of the run and of the question set.
        kind: ``METRIC``; ``GROUP``, a metric on a group of questions; ``SEARCH``, the recall of a search; ``COST``; ``PROBLEM``, 1 or 0.
        part: (breakdown, group), or (search,), or (kind of queries,); empty: all questions.
        metric: name of the metric, the cost or the problem.
        values: float64 (questions,); NaN: undefined, or not of this part.
        n: number of questions of the part.
        bootstrap: parameters of the interval.
    """

    run: str
    dataset: str
    kind: str
    part: tuple[str, ...]
    metric: str
    values: FloatArray
    n: int
    bootstrap: Bootstrap

    @cached_property
    def mean(self) -> Interval:
        """The mean with its interval."""
        return self.bootstrap.interval(self.values)

    @property
    def total(self) -> float:
        """The sum of the values."""
        return float(np.nansum(self.values))


def long_table(runs: Iterable[ScoredRun], bootstrap: Bootstrap) -> list[Series]:
    """Return the values of runs, run by run."""
    return [Series(run.name, run.dataset, *rows, bootstrap) for run in runs for rows in _rows(run)]


def _rows(run: ScoredRun) -> Iterator[tuple[str, tuple[str, ...], str, FloatArray, int]]:
    """Yield kind, part, metric, values and number of questions of each series."""
    n = len(run.questions)
    for name, values in run.values.items():
        yield (METRIC, (), name, values, n)
    for breakdown, masks in run.groups().items():
        for group, mask in masks.items():
            for name, values in run.values.items():
                yield (GROUP, (breakdown, group), name, np.where(mask, values, np.nan), int(mask.sum()))
    for search, by_metric in run.recall.steps.items():
        for name, values in by_metric.items():
            yield (SEARCH, (search,), name, values, int((~np.isnan(values)).sum()))
    for name, values in run.costs.items():
        yield (COST, (), name, values, n)
    for name, mask in problem_masks(run.rows).items():
        yield (PROBLEM, (), name, mask.astype(np.float64), n)


def select(table: Iterable[Series], *kinds: str) -> list[Series]:
    """Return the series of some kinds."""
    return [series for series in table if series.kind in kinds]


def nest(table: Iterable[Series], cell: Callable[[Series], Any], *, by_run: bool = False) -> dict[str, Any]:
    """Return nested dicts, from the parts to the metric, of ``cell`` of each series; with ``by_run``, the run comes first."""
    result = dict[str, Any]()
    for series in table:
        inner = result
        for key in (*([series.run] if by_run else []), *series.part):
            inner = inner.setdefault(key, {})
        inner[series.metric] = cell(series)
    return result


def pivot(table: Sequence[Series], metrics: Sequence[str], *, with_n: bool = False) -> list[list[Any]]:
    """Return a row for each run and part: the run, the part, with ``with_n`` its number of questions, and the mean of each metric.

    The mean is None where there is none.
    """
    groups = dict[tuple[str, ...], dict[str, Series]]()
    for series in table:
        groups.setdefault((series.dataset, series.run, *series.part), {})[series.metric] = series
    rows = list[list[Any]]()
    for (_, *key), found in groups.items():
        n = [next(iter(found.values())).n] if with_n else []
        rows.append([*key, *n, *(found[name].mean if name in found else None for name in metrics)])
    return rows

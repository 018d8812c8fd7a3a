"""The long table of two runs made by hand, and what reports read from it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.runtimes.evaluation.test_comparing import run
from wikidx.runtimes.evaluation.long_table import COST, GROUP, METRIC, PROBLEM, SEARCH, Series, long_table, nest, pivot, select
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.step_recall import StepRecall
from wikidx.runtimes.evaluation.uncertainty import Bootstrap


@pytest.fixture
def runs() -> list[ScoredRun]:
    """Two runs of four questions; the first has two searches and knows whether its passages hold an answer, the second failed once."""
    first, second = run("first", [1, 0, 1, np.nan]), run("second", [0, 0, 1, 1], metric="squad_em", dataset="FEVER")
    recall = StepRecall({"round 1": {"answer@1": np.array([1.0, 0.0, np.nan, np.nan]), "answer@5": np.array([1.0, 1.0, np.nan, np.nan])}})
    rows = (*second.rows[:3], second.rows[3]._replace(answer=None, error="LLMError: gone"))
    return [first._replace(holds_answer=np.array([1.0, 0, 0, np.nan]), recall=recall), second._replace(rows=rows)]


def rows_of(table: list[Series]) -> set[tuple[object, ...]]:
    """Return run, question set, kind, part, number of the question, metric, value: what the series stand for."""
    return {
        (each.run, each.dataset, each.kind, each.part, question, each.metric, value)
        for each in table
        for question, value in enumerate(each.values.tolist())
        if not math.isnan(value)
    }


def test_every_value_of_every_question_is_a_row(runs: list[ScoredRun]) -> None:
    rows = rows_of([each for each in long_table(runs, Bootstrap()) if each.kind != COST and each.metric != "empty"])
    first, second = ("first", "NQ"), ("second", "FEVER")
    assert rows == {
        *((*first, METRIC, (), n, "dpr_em", value) for n, value in ((0, 1.0), (1, 0.0), (2, 1.0))),
        (*first, GROUP, ("passages", "hold an answer"), 0, "dpr_em", 1.0),
        *((*first, GROUP, ("passages", "hold none"), n, "dpr_em", value) for n, value in ((1, 0.0), (2, 1.0))),
        *((*first, SEARCH, ("round 1",), n, "answer@1", value) for n, value in ((0, 1.0), (1, 0.0))),
        *((*first, SEARCH, ("round 1",), n, "answer@5", 1.0) for n in (0, 1)),
        *((*second, METRIC, (), n, "squad_em", value) for n, value in enumerate((0.0, 0.0, 1.0, 1.0))),
        *((*of, PROBLEM, (), n, "unanswered", 0.0) for of in (first, second) for n in range(4)),
        *((*first, PROBLEM, (), n, "failed", 0.0) for n in range(4)),
        *((*second, PROBLEM, (), n, "failed", float(n == 3)) for n in range(4)),
    }


def test_means_and_sizes_of_parts(runs: list[ScoredRun]) -> None:
    table = long_table(runs, Bootstrap())
    whole = select(table, METRIC)[0]
    assert whole.mean == Bootstrap().interval(runs[0].values["dpr_em"])
    assert (whole.n, whole.mean.n, whole.total) == (4, 3, 2.0)
    assert {each.part: (each.n, each.mean.mean) for each in select(table, GROUP, SEARCH) if each.metric != "answer@5"} == {
        ("passages", "hold an answer"): (1, 1.0),
        ("passages", "hold none"): (2, 0.5),
        ("round 1",): (2, 0.5),
    }


def test_groups_by_parts_and_metrics(runs: list[ScoredRun]) -> None:
    table = long_table(runs, Bootstrap())
    assert nest(select(table, SEARCH), lambda each: each.total) == {"round 1": {"answer@1": 1.0, "answer@5": 2.0}}
    assert nest(select(table, METRIC), lambda each: each.total, by_run=True) == {"first": {"dpr_em": 2.0}, "second": {"squad_em": 2.0}}
    by_group = pivot(select(table, GROUP), ["dpr_em", "squad_em"], with_n=True)
    assert [(*row[:4], row[4].mean, row[5]) for row in by_group] == [
        ("first", "passages", "hold an answer", 1, 1.0, None),
        ("first", "passages", "hold none", 2, 0.5, None),
    ]
    assert [(row[0], *(mean and mean.mean for mean in row[1:])) for row in pivot(select(table, METRIC), ["squad_em", "dpr_em"])] == [
        ("first", None, 2 / 3),
        ("second", 0.5, None),
    ]

"""The report on several scored runs, compared with one another and with the papers' figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.comparing import (
    SECONDS,
    Difference,
    PublishedResult,
    compare_pairs,
    group_by_dataset,
    match_published,
    metric_names,
    question_positions,
)
from wikidx.runtimes.evaluation.reports.answers_report import answers_json, issue_tables, row_metric_notes
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, cell_json, p_value, percent, signed_percent
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS_NOTE = (
    "the paper's: the value in the paper's table, measured with the language model, retriever and questions of this row; ours: the value "
    "of a run with the same method, measured with the settings named under Runs"
)
_COSTS = {"tokens": "tokens per question", "calls": "model calls per question", SECONDS: "seconds per question"}


class Comparison(NamedTuple):
    """Runs and their comparison.

    Attributes:
        runs: the runs, in display order.
        differences: the differences between the runs.
        published: the papers' figures with the runs' counterparts.
        bootstrap: the parameters of all intervals.
    """

    runs: Sequence[ScoredRun]
    differences: Sequence[Difference]
    published: Sequence[PublishedResult]
    bootstrap: Bootstrap

    def mean(self, run: ScoredRun, metric: str) -> Interval:
        """Return a run's mean of a metric or of a cost."""
        return self.bootstrap.interval(run.values_of(metric))


def compare(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, every_pair: bool = False, every_paper: bool = False) -> Comparison:
    """Compare runs; ``every_pair`` is passed to ``compare_pairs``, and ``every_paper`` to ``match_published`` as ``include_all``."""
    differing = list(compare_pairs(runs, bootstrap, every_pair=every_pair))
    return Comparison(runs, differing, match_published(runs, bootstrap, include_all=every_paper), bootstrap)


def comparison_report(comparison: Comparison) -> Report:
    """Return a comparison's report: tables and plots."""
    sets = group_by_dataset(comparison.runs)
    scores = [_scores(comparison, dataset, runs) for dataset, runs in sets.items()]
    plots = [Drawing("Bars: the mean of each run by each metric, with its interval; marks: published results", partial(_bars, comparison))]
    tradeoffs = [
        Drawing(f"Accuracy against cost on {dataset}", partial(_tradeoffs, comparison, runs))
        for dataset, runs in sets.items()
        if _cost_panels(runs)
    ]
    sections = [
        Section("Runs", [_runs(comparison.runs)]),
        Section("Scores", scores, plots if metric_names(comparison.runs) else []),
        Section("Differences", _differences(comparison)),
        Section("Published results", _papers(comparison)),
        Section("Cost", [_costs(comparison)], tradeoffs),
        Section("Data issues", issue_tables(comparison.runs)),
    ]
    return Report("Comparison of " + ", ".join(run.name for run in comparison.runs), [], sections)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values; metric values are from 0 to 1, not rounded."""
    return {
        "runs": [answers_json(run, comparison.bootstrap) for run in comparison.runs],
        "differences": [
            {
                **{field: value for field, value in result._asdict().items() if field != "test"},
                **{field: cell_json(value) for field, value in result.test._asdict().items()},
            }
            for result in comparison.differences
        ],
        "papers": [
            {
                **result.published._asdict(),
                "note": "the paper's own figure",
                "our_metric": result.metric,
                "own_results": [{**own._asdict(), "value": cell_json(own.value)} for own in result.own_results],
            }
            for result in comparison.published
        ],
    }


def question_records(runs: Sequence[ScoredRun]) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each data set and question, with the answers and values of the runs that have the question."""
    for dataset, group in group_by_dataset(runs).items():
        positions = [question_positions(run) for run in group]
        questions = {key: run.questions[position] for run, places in zip(group, positions, strict=True) for key, position in places.items()}
        for key, question in questions.items():
            located = [(run, places[key]) for run, places in zip(group, positions, strict=True) if key in places]
            yield {
                "dataset": dataset,
                "id": question.id,
                "question": question.text,
                "golden_answers": list(question.golden_answers),
                "answers": {run.name: run.rows[position].answer for run, position in located},
                "metrics": {
                    metric: {run.name: cell_json(float(run.values[metric][position])) for run, position in located if metric in run.values}
                    for metric in metric_names(group)
                },
            }


def _runs(runs: Sequence[ScoredRun]) -> Table:
    rows = [(run.name, run.dataset, len(run.questions), *run.facts) for run in runs]
    names = ("run", "data set", "questions", *runs[0].facts._fields)
    return Table([Column(name) for name in names], rows, "Runs")


def _scores(comparison: Comparison, dataset: str, runs: Sequence[ScoredRun]) -> Table:
    names = metric_names(runs)
    rows: list[list[Cell]] = [[run.name, *(comparison.mean(run, name) for name in names)] for run in runs]
    columns = [Column("run"), *(Column(name, percent) for name in names)]
    row_metrics = [f"{run.name}, {note}" for run in runs for note in row_metric_notes(run)]
    return Table(columns, rows, f"{dataset}, mean in %", [f"in brackets: {comparison.bootstrap.note()}", *row_metrics])


def _differences(comparison: Comparison) -> list[Table]:
    rows = [
        (
            difference.dataset,
            difference.metric,
            f"{difference.first} - {difference.second}",
            Interval(*difference.test[:3], difference.test.n),
            difference.test.p,
            *difference.test[4:],
            difference.n_unpaired,
        )
        for difference in comparison.differences
    ]
    names = ("questions", "wins", "losses", "ties", "not in both")
    columns = (
        Column("data set"),
        Column("metric"),
        Column("runs"),
        Column("difference, points", signed_percent),
        Column("p", p_value),
        *map(Column, names),
    )
    notes = [
        "questions: those of both runs on which the metric is defined; wins: questions on which the first run scores higher",
        f"p: two-sided paired randomisation test, not corrected for the {len(rows)} comparisons of this table",
        "not in both: questions of only one run, and different questions under the same id",
    ]
    return [Table(columns, rows, "Differences, paired by question", notes)] if rows else []


def _papers(comparison: Comparison) -> list[Table]:
    shares = [result for result in comparison.published if result.metric != SECONDS]
    seconds = [result for result in comparison.published if result.metric == SECONDS]
    groups = (("in %", shares, percent), ("seconds per question", seconds, brief))
    return [_papers_table(comparison, f"Published results and ours, {unit}", quotes, show) for unit, quotes, show in groups if quotes]


def _papers_table(comparison: Comparison, title: str, quotes: Sequence[PublishedResult], show: Callable[[Cell], str]) -> Table:
    names, rows = [run.name for run in comparison.runs], list[list[Cell]]()
    for published, metric, own_results in quotes:
        values = {own.run: own.value for own in own_results}
        search = ", ".join(filter(None, (published.retriever, published.corpus))) or None
        cells = [published.dataset, published.source, published.system, published.model, search, published.questions]
        rows.append([*cells, f"{published.metric}, our {metric}", published.value, *map(values.get, names)])
    heads = [Column(head) for head in ("data set", "paper", "system", "LLM", "retriever, corpus", "questions", "metric")]
    return Table([*heads, Column("the paper's", show), *(Column(f"ours: {name}", show) for name in names)], rows, title, [PAPERS_NOTE])


def _costs(comparison: Comparison) -> Table:
    kinds = list(comparison.runs[0].costs)
    rows: list[list[Cell]] = [[run.name, *(comparison.mean(run, kind) for kind in kinds)] for run in comparison.runs]
    note = (
        "seconds: from a question's first request to its answer, including time spent on other questions; comparable only between runs "
        "with the same load"
    )
    return Table([Column("run"), *(Column(kind, brief) for kind in kinds)], rows, "Cost, mean per question", [note])


def _bars(comparison: Comparison) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import Mark, bars

    sets = group_by_dataset(comparison.runs)
    panels, marks = dict[str, dict[str, Interval]](), dict[str, list[Mark]]()
    for dataset, runs in sets.items():
        for name in metric_names(runs):
            panels[_heading(dataset, name)] = {run.name: comparison.mean(run, name) for run in runs}
    for quoted in comparison.published:
        if quoted.metric != SECONDS:
            heading = _heading(quoted.published.dataset, quoted.metric)
            marks.setdefault(heading, []).extend(
                Mark(ours.run, quoted.published.paper, quoted.published.value) for ours in quoted.own_results
            )
    return bars(panels, marks)


def _heading(dataset: str, metric: str) -> str:
    return f"{dataset}, {metric}"


def _cost_panels(runs: Sequence[ScoredRun]) -> dict[str, str]:
    """Return cost -> axis label, for the costs that at least two runs record; empty if the runs have no metrics."""
    n_runs = {kind: sum(not np.isnan(run.costs[kind]).all() for run in runs) for kind in _COSTS}
    return {kind: label for kind, label in _COSTS.items() if n_runs[kind] > 1 and metric_names(runs)}


def _tradeoffs(comparison: Comparison, runs: Sequence[ScoredRun]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import Point, tradeoffs

    metric = metric_names(runs)[0]
    panels = dict[str, dict[str, Point]]()
    for kind, label in _cost_panels(runs).items():
        for run in runs:
            mean, cost = comparison.mean(run, metric), comparison.mean(run, kind)
            if mean.n and cost.n:
                panels.setdefault(label, {})[run.name] = Point(cost, mean)
    return tradeoffs(panels, accuracy=f"{runs[0].dataset}: {metric}")

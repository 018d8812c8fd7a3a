"""Several scored runs side by side, with the papers' figures, as a report, as JSON, and question by question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.comparing import SECONDS, Difference, PublishedResult, datasets, differences, metrics, places_of, quoted
from wikidx.runtimes.evaluation.reports.answers_report import answers_json, measured_notes, odd_tables
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, json_value, p_value, percent, signed_percent
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS_NOTE = (
    "'the paper's' are the papers' own figures, quoted from their tables: they come from the language models, retrievers and questions "
    "named here, ours from those named under Runs. A figure of ours stands where a run is of the same method."
)
_COSTS = {"tokens": "tokens a question", "calls": "calls of language models a question", SECONDS: "seconds a question"}


class Comparison(NamedTuple):
    """Runs and their comparison.

    Attributes:
        runs: in display order.
        differences: between them.
        quoted: the papers' figures beside theirs.
        bootstrap: of all intervals.
    """

    runs: Sequence[ScoredRun]
    differences: Sequence[Difference]
    quoted: Sequence[PublishedResult]
    bootstrap: Bootstrap

    def mean(self, run: ScoredRun, metric: str) -> Interval:
        """Return a run's mean by a metric, or of a cost."""
        return self.bootstrap.interval(run.values_of(metric))


def compare(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, every_pair: bool = False, every_paper: bool = False) -> Comparison:
    """Compare runs; see ``differences`` and ``quoted`` for the options."""
    differing = list(differences(runs, bootstrap, every_pair=every_pair))
    return Comparison(runs, differing, quoted(runs, bootstrap, everything=every_paper), bootstrap)


def comparison_report(found: Comparison) -> Report:
    """Return the report of a comparison."""
    sets = datasets(found.runs)
    scores = [_scores(found, dataset, runs) for dataset, runs in sets.items()]
    marked = [Drawing("Bars: each run's mean by each metric, with its interval, and the papers' figures as marks", partial(_bars, found))]
    tradeoffs = [
        Drawing(f"Accuracy against cost on {dataset}", partial(_tradeoffs, found, runs))
        for dataset, runs in sets.items()
        if _cost_panels(runs)
    ]
    sections = [
        Section("Runs", [_runs(found.runs)]),
        Section("Scores", scores, marked if metrics(found.runs) else []),
        Section("Differences", _differences(found)),
        Section("The papers' figures", _papers(found)),
        Section("Cost", [_costs(found)], tradeoffs),
        Section("Odd input", odd_tables(found.runs)),
    ]
    return Report("Comparison of " + ", ".join(run.name for run in found.runs), [], sections)


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values: shares from 0 to 1, unrounded."""
    return {
        "runs": [answers_json(run, found.bootstrap) for run in found.runs],
        "differences": [
            {
                **{field: value for field, value in one._asdict().items() if field != "paired"},
                **{field: json_value(value) for field, value in one.paired._asdict().items()},
            }
            for one in found.differences
        ],
        "papers": [
            {
                **one.published._asdict(),
                "is": "the paper's own figure",
                "our_metric": one.metric,
                "ours": [{**ours._asdict(), "value": json_value(ours.value)} for ours in one.ours],
            }
            for one in found.quoted
        ],
    }


def question_records(runs: Sequence[ScoredRun]) -> Iterator[dict[str, Any]]:
    """Yield for each data set and question the answer and values of each run that was asked it."""
    for dataset, some in datasets(runs).items():
        rows = [places_of(run) for run in some]
        asked = {key: run.questions[place] for run, places in zip(some, rows, strict=True) for key, place in places.items()}
        for key, question in asked.items():
            placed = [(run, places[key]) for run, places in zip(some, rows, strict=True) if key in places]
            yield {
                "dataset": dataset,
                "id": question.id,
                "question": question.text,
                "golden_answers": list(question.golden_answers),
                "answers": {run.name: run.rows[place].answer for run, place in placed},
                "metrics": {
                    metric: {run.name: json_value(float(run.values[metric][place])) for run, place in placed if metric in run.values}
                    for metric in metrics(some)
                },
            }


def _runs(runs: Sequence[ScoredRun]) -> Table:
    rows = [(run.name, run.dataset, len(run.questions), *run.facts) for run in runs]
    names = ("run", "data set", "questions", *runs[0].facts._fields)
    return Table([Column(name) for name in names], rows, "Runs")


def _scores(found: Comparison, dataset: str, runs: Sequence[ScoredRun]) -> Table:
    names = metrics(runs)
    rows: list[list[Cell]] = [[run.name, *(found.mean(run, name) for name in names)] for run in runs]
    columns = [Column("run"), *(Column(name, percent) for name in names)]
    measured = [f"{run.name}, {note}" for run in runs for note in measured_notes(run)]
    return Table(columns, rows, f"{dataset}, mean in %", [f"in brackets: {found.bootstrap.note()}", *measured])


def _differences(found: Comparison) -> list[Table]:
    rows = [
        (
            one.dataset,
            one.metric,
            f"{one.first} - {one.second}",
            Interval(*one.paired[:3], one.paired.n),
            one.paired.p,
            *one.paired[4:],
            one.n_alone,
        )
        for one in found.differences
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
        "wins: questions on which the first run is better; 'questions' are those of both runs on which the metric is defined",
        f"p: paired randomisation test, two-sided; not corrected for the {len(rows)} comparisons of this table",
        "not in both: questions of one run alone; so are different questions under one id, which are not compared",
    ]
    return [Table(columns, rows, "Differences, paired by question", notes)] if rows else []


def _papers(found: Comparison) -> list[Table]:
    shares = [one for one in found.quoted if one.metric != SECONDS]
    seconds = [one for one in found.quoted if one.metric == SECONDS]
    both = (("in %", shares, percent), ("seconds a question", seconds, brief))
    return [_papers_table(found, f"The papers' figures beside ours, {unit}", some, show) for unit, some, show in both if some]


def _papers_table(found: Comparison, title: str, quotes: Sequence[PublishedResult], show: Callable[[Cell], str]) -> Table:
    names, rows = [run.name for run in found.runs], list[list[Cell]]()
    for published, metric, ours in quotes:
        values = {one.run: one.value for one in ours}
        where = ", ".join(filter(None, (published.retriever, published.corpus))) or None
        told = [published.dataset, published.source, published.system, published.model, where, published.questions]
        rows.append([*told, f"{published.metric}, our {metric}", published.value, *map(values.get, names)])
    heads = [Column(head) for head in ("data set", "paper", "system", "LLM", "retriever, corpus", "questions", "metric")]
    return Table([*heads, Column("the paper's", show), *(Column(f"ours: {name}", show) for name in names)], rows, title, [PAPERS_NOTE])


def _costs(found: Comparison) -> Table:
    kinds = list(found.runs[0].costs)
    rows: list[list[Cell]] = [[run.name, *(found.mean(run, kind) for kind in kinds)] for run in found.runs]
    note = "seconds from a question's first request to its answer, with all that ran beside it: comparable only between runs alike in that"
    return Table([Column("run"), *(Column(kind, brief) for kind in kinds)], rows, "Cost, mean a question", [note])


def _bars(found: Comparison) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import Mark, bars

    sets = datasets(found.runs)
    panels, marks = dict[str, dict[str, Interval]](), dict[str, list[Mark]]()
    for dataset, runs in sets.items():
        for name in metrics(runs):
            panels[_heading(dataset, name)] = {run.name: found.mean(run, name) for run in runs}
    for one in found.quoted:
        if one.metric != SECONDS:
            heading = _heading(one.published.dataset, one.metric)
            marks.setdefault(heading, []).extend(Mark(ours.run, one.published.paper, one.published.value) for ours in one.ours)
    return bars(panels, marks)


def _heading(dataset: str, metric: str) -> str:
    return f"{dataset}, {metric}"


def _cost_panels(runs: Sequence[ScoredRun]) -> dict[str, str]:
    """Return the kinds of cost recorded by at least two runs, with the labels of their axes."""
    n_told = {kind: sum(not np.isnan(run.costs[kind]).all() for run in runs) for kind in _COSTS}
    return {kind: label for kind, label in _COSTS.items() if n_told[kind] > 1 and metrics(runs)}


def _tradeoffs(found: Comparison, runs: Sequence[ScoredRun]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import Point, tradeoffs

    metric = metrics(runs)[0]
    panels = dict[str, dict[str, Point]]()
    for kind, label in _cost_panels(runs).items():
        for run in runs:
            mean, cost = found.mean(run, metric), found.mean(run, kind)
            if mean.n and cost.n:
                panels.setdefault(label, {})[run.name] = Point(cost, mean)
    return tradeoffs(panels, accuracy=f"{runs[0].dataset}: {metric}")

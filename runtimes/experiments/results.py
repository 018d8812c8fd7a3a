"""An experiment's runs beside the paper's figures: a report and JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from wikidx.base.errors import IdxError, InputError
from wikidx.corpora.build import store_manifest
from wikidx.runtimes.evaluation.comparing import describe_differences, describe_obstacles, metric_names
from wikidx.runtimes.evaluation.long_table import long_table
from wikidx.runtimes.evaluation.published import LATENCY, PublishedFigure
from wikidx.runtimes.evaluation.reports.answers_report import answers_json
from wikidx.runtimes.evaluation.reports.comparison_report import seeds_json
from wikidx.runtimes.evaluation.reports.drawings import Drawing, Mark
from wikidx.runtimes.evaluation.reports.report import Report, Section
from wikidx.runtimes.evaluation.reports.run_tables import answered, issue_tables, run_sections
from wikidx.runtimes.evaluation.reports.search_tables import NO_TEXTS
from wikidx.runtimes.evaluation.reports.tables import Cell as Value
from wikidx.runtimes.evaluation.reports.tables import Spread, Table, brief, cell_json, columns, percent, signed_brief, signed_percent
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS
from wikidx.runtimes.evaluation.scoring import COSTS, ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval
from wikidx.runtimes.questions import SAMPLE

from .files import Cell, Experiment

_MODEL_METRICS = {"alce_citation": "--citations", "_judge": "--judge"}  # part of the name -> option
_SETTINGS = ("metric", "the paper's LLM", "our metric")  # columns that become a note below a table if all rows have the same


def option_of(metric: str) -> str | None:
    """Return the option that names the model of a metric; None if the metric needs no model."""
    return next((option for part, option in _MODEL_METRICS.items() if part in metric), None)


def check_metrics(experiment: Experiment, models: Mapping[str, str | None]) -> None:
    """Raise ``InputError`` if an option names a model, and no question set has a metric for it."""
    known = {option_of(metric) for questions in experiment.questions.values() for metric in questions.metrics}
    for option, model in models.items():
        if model is not None and option not in known:
            raise InputError(f"{option} {model}: no question set of this experiment has a metric that needs it: leave it out")


class Result(NamedTuple):
    """A figure of ours beside one of the paper's.

    Attributes:
        row, dataset, metric: row, question set, and our metric; "": the paper's metric has no counterpart.
        paper: the paper's figure; None: it gives none.
        ours: mean over the questions of one run with its interval, or over several runs with its deviation; None: no run.
        difference: ours minus the paper's figure, which counts as exact; None: one is missing, or ours is on the sample.
        answered: the number of answered questions of those that the runs were to ask, and of the seeds if some are missing; "": no run.
        comparable: whether both are on the same corpus and the same number of questions; None: one is missing.
        remark: the settings that differ, the paper's first, or the reason why there is no run or no value.
    """

    row: str
    dataset: str
    metric: str
    paper: PublishedFigure | None
    ours: Interval | Spread | None
    difference: Interval | Spread | None
    answered: str
    comparable: bool | None
    remark: str

    @property
    def is_share(self) -> bool:
        """True if the figures are shares, False if they are a cost per question."""
        return self.metric not in COSTS and (self.paper is None or self.paper.metric != LATENCY)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        values = {"ours": cell_json(self.ours), "difference": cell_json(self.difference)}
        return {**self._asdict(), "paper": self.paper and self.paper._asdict(), **values}


class Outcome(NamedTuple):
    """An experiment with its scored runs.

    Attributes:
        name: the experiment's name.
        experiment: the experiment.
        runs: (row, question set) -> the runs, one for each seed.
        left_out: (row, question set) -> why a run cannot be scored.
        bootstrap: the parameters of all intervals.
    """

    name: str
    experiment: Experiment
    runs: Mapping[tuple[str, str], Sequence[ScoredRun]]
    left_out: Mapping[tuple[str, str], str]
    bootstrap: Bootstrap

    def results(self) -> Iterator[Result]:
        """Yield the results of each cell, row by row."""
        for cell in self.experiment.cells():
            runs = self.runs.get((cell.row.name, cell.dataset), ())
            dataset = cell.questions.figures or cell.dataset
            figures = [figure for figure in self.experiment.figures(cell.row) if figure.dataset == dataset]
            metrics = cell.questions.metrics or metric_names(runs) or [""]
            pairs = [(next((name for name in figure.own_metrics if name in metrics), ""), figure) for figure in figures]
            paired = {metric for metric, _ in pairs}
            alone = [(metric, None) for metric in metrics if metric not in paired and (runs or not figures)]
            for metric, figure in (*pairs, *alone):
                yield self._result(cell, runs, metric, figure)

    def _result(self, cell: Cell, runs: Sequence[ScoredRun], metric: str, figure: PublishedFigure | None) -> Result:
        ours = _average(runs, metric, self.bootstrap)
        is_comparable = None if figure is None or ours is None else not describe_obstacles(figure, runs[0])
        difference = _minus(ours, figure.value) if figure and ours and cell.questions.source != SAMPLE else None
        error = self.left_out.get((cell.row.name, cell.dataset))
        if runs:
            remark = _why_no_value(runs[0], metric) if ours is None else _describe(runs[0], figure, metric, cell)
            remark += f"; a run is left out: {error}" if error else ""
        else:
            remark = cell.missing or error or "not run"
        reached, n_seeds = ", ".join(dict.fromkeys(map(answered, runs))), len(cell.row.seeds or self.experiment.seeds)
        reached += f", {len(runs)} of {n_seeds} seeds" if 0 < len(runs) < n_seeds else ""
        return Result(cell.row.name, cell.dataset, metric, figure, ours, difference, reached, is_comparable, remark)

    def every_run(self) -> list[ScoredRun]:
        """Return the runs in the order of the table."""
        return [run for runs in self.runs.values() for run in runs]


def outcome_report(outcome: Outcome) -> Report:
    """Return the report: the paper's figures and ours, and what the runs tell besides."""
    experiment, runs = outcome.experiment, outcome.every_run()
    results = list(outcome.results())
    tables = [
        _table(dataset, rows, outcome, is_share=is_share)
        for dataset in experiment.questions
        for is_share in (True, False)
        if (rows := [each for each in results if each.dataset == dataset and each.is_share == is_share])
    ]
    plots = [
        _bars(drawn, dataset, metric)
        for dataset, questions in experiment.questions.items()
        for metric in (questions.metrics or metric_names(runs))[:1]
        if metric not in COSTS
        and (drawn := [each for each in results if (each.dataset, each.metric) == (dataset, metric) and each.ours is not None])
    ]
    sections = [Section("The paper's figures and ours" if experiment.paper else "Figures", tables, plots)]
    if runs:
        table = long_table(runs, outcome.bootstrap)
        sections += [
            *run_sections(runs, table),
            Section("Data issues", issue_tables(runs)),
        ]
    return Report(f"{outcome.name}: {experiment.title}", _facts(outcome), sections)


def _facts(outcome: Outcome) -> list[tuple[str, str]]:
    experiment = outcome.experiment
    facts = {
        "paper": f"{experiment.paper}, {experiment.table}" if experiment.table else "",
        "the paper's models": ", ".join(f"{role}: {model}" for role, model in experiment.models.items()),
        "our models": ", ".join(dict.fromkeys(run.facts.model for run in outcome.every_run())),
    }
    return [(label, value) for label, value in facts.items() if value] + [("note", note) for note in experiment.notes]


def summary_report(report: Report) -> Report:
    """Return the part of an ``outcome_report`` for a terminal: the tables with figures of ours, without the set-ups."""
    first = report.sections[0]
    ours = [table for table in first.tables if any(column.name == "ours" for column in table.columns)]
    tables = [table._replace(columns=table.columns[:-1], rows=[row[:-1] for row in table.rows]) for table in ours or first.tables]
    return report._replace(sections=[Section(first.title, tables)])


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values; metric values are from 0 to 1, not rounded."""
    experiment, runs = outcome.experiment, outcome.every_run()
    return {
        "experiment": outcome.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "table": experiment.table,
        "models": experiment.models,
        "notes": experiment.notes,
        "results": [result.to_json() for result in outcome.results()],
        "runs": [answers_json(run, outcome.bootstrap) for run in runs],
        "seeds": seeds_json(runs),
    }


def _table(dataset: str, results: Sequence[Result], outcome: Outcome, *, is_share: bool) -> Table:
    rows: list[list[Value]] = []
    for row, _, metric, published, ours, difference, reached, is_comparable, remark in results:
        theirs = [published.metric, published.model, published.value] if published else [None] * 3
        comparable = None if is_comparable is None else "yes" if is_comparable else "no"
        rows.append([row, *theirs, metric or None, ours, difference, reached or None, comparable, remark])
    show, show_difference = (percent, signed_percent) if is_share else (brief, signed_brief)
    heads = columns("row", "metric", "the paper's LLM") + columns("the paper's", show=show) + columns("our metric")
    heads += columns("ours", show=show) + columns("difference", show=show_difference)
    heads += columns("answered", "comparable", "set-up, the paper's / ours, or why there is no value")
    notes = [f"ours: {outcome.bootstrap.note()}; over several seeds: mean ± standard deviation of the runs' means"]
    questions = outcome.experiment.questions[dataset]
    if any(result.paper for result in results):
        beside = f"ours: on the sample's questions and passages; the paper's: on {questions.figures or dataset}: not comparable"
        if questions.source != SAMPLE:
            beside = "difference: ours minus the paper's figure, which counts as exact; comparable: the same corpus and number of questions"
        notes.append(beside)
    runs = [run for run in outcome.every_run() if run.dataset == dataset]
    if any(run.n_answered < len(run.questions) for run in runs):
        notes.append("answered: the other questions count 0 in shares")
    if len({len(run.questions) for run in runs}) > 1:
        notes.append("the rows were asked different numbers of questions: repeat the command with the highest --limit to compare them")
    for why in dict.fromkeys(result.remark for result in results if result.ours is None):
        notes.append(f"no value of {'; '.join(dict.fromkeys(result.row for result in results if result.remark == why))}: {why}")
    alike = [at for at, column in enumerate(heads) if column.name in _SETTINGS and rows[1:] and len({row[at] for row in rows}) == 1]
    if named := [f"{heads[at].name}: {rows[0][at]}" for at in alike if rows[0][at] is not None]:
        notes.insert(0, f"of all rows: {', '.join(named)}")
    shown = [at not in alike and any(row[at] is not None for row in rows) for at in range(len(heads))]
    title = f"{dataset}, {'in %' if is_share else 'per question; service and latency_s in seconds'}"
    return Table(list(compress(heads, shown)), [list(compress(row, shown)) for row in rows], title, notes)


def _average(runs: Sequence[ScoredRun], metric: str, bootstrap: Bootstrap) -> Interval | Spread | None:
    """Return the mean of a metric over the questions of one run, or over several runs; None without values."""
    means = [mean for run in runs if (mean := bootstrap.interval(run.values_of(metric))).n]
    if len(means) < 2:
        return means[0] if means else None
    values = np.array([mean.mean for mean in means])
    return Spread(float(values.mean()), float(values.std(ddof=1)), len(values))


def _why_no_value(run: ScoredRun, metric: str) -> str:
    """Return why a run has no value of a metric."""
    if not metric:
        return "no metric of this question set stands for the paper's"
    if metric in COSTS:
        return f"the predictions do not record '{metric}'"
    if metric in RECALL_METRICS:
        return (
            "no recorded search returns so many passages" if not run.recall.n_unknown else f"needs the corpus on this machine: {NO_TEXTS}"
        )
    if metric not in run.values:
        return f"{metric} needs " + (option_of(metric) or "the extra 'eval'")
    failures = [why for about in run.row_metrics.values() if metric in about["values"] for why in about.get("failures") or ()]
    return f"the model of {metric} failed: {failures[0]}" if failures else f"no question has the gold answers that {metric} needs"


def _minus(ours: Interval | Spread, figure: float) -> Interval | Spread:
    if isinstance(ours, Spread):
        return ours._replace(mean=ours.mean - figure)
    return Interval(ours.mean - figure, ours.low - figure, ours.high - figure, ours.n)


def _describe(run: ScoredRun, figure: PublishedFigure | None, metric: str, cell: Cell) -> str:
    """Return the settings in which a run differs from the paper's; without a figure, those of the run."""
    facts = run.facts
    own = [f"LLM: {facts.model}", f"questions: {len(run.questions):,}", *([f"retriever: {facts.retriever}"] if facts.retriever else [])]
    parts = [describe_differences(figure, run, metric)] if figure else own
    with contextlib.suppress(IdxError):  # on a server, or removed since
        if facts.corpus:
            parts.append(f"passages in {facts.corpus}: {store_manifest(facts.corpus).counts['rows']:,}")
    parts.append(f"questions of {PurePath(run.source.file).name or run.source.origin}")
    prompts = f"the set {cell.row.prompts}" if cell.row.prompts else "ours"
    parts.append(f"prompts: the paper's / {prompts}" if figure else f"prompts: {prompts}")
    return "; ".join(filter(None, parts))


def _bars(results: Sequence[Result], dataset: str, metric: str) -> Drawing:
    """Return the plot of a bar for each row, with the paper's figures as marks where they are comparable."""
    panel, marks = dict[str, Interval](), list[Mark]()
    for result in results:
        if isinstance(result.ours, Spread):
            mean, deviation, n = result.ours
            panel[result.row] = Interval(mean, mean - deviation, mean + deviation, n)
        elif result.ours is not None:
            panel[result.row] = result.ours
        if result.paper is not None and result.comparable:
            marks.append(Mark(result.row, result.paper.paper, result.paper.value))
    return Drawing(f"{dataset}: {metric} of each row; marks: the paper's", "bars", (f"{dataset}, {metric}", panel, marks))

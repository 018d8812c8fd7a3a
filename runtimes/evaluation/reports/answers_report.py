"""The report on one scored run: tables and plots, JSON, and a record per question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.by_models.row_metrics import flatten, origin_of
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, cell_json, percent
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import RULES, Occurrences, ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval
from wikidx.runtimes.llms.text import LOW_MASS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALL = "all"
_SHOWN = 24  # displayed characters of an id


def answers_report(run: ScoredRun, bootstrap: Bootstrap) -> Report:
    """Return the report on one run; notes below the scores give the metrics' origins."""
    means = {name: bootstrap.interval(values) for name, values in run.values.items()}
    by_type = _by_type(run, bootstrap)
    rows = [(name, mean, mean.n, len(run.questions) - mean.n) for name, mean in means.items()]
    origins = [f"{name}: {METRICS[name].origin}" for name in means if name in METRICS]
    columns = (Column("metric"), Column("mean, %", percent), Column("questions"), Column("not defined"))
    figures = [Table(columns, rows, "Scores", [f"in brackets: {bootstrap.note()}", *row_metric_notes(run), *origins])]
    if by_type:
        figures.append(_types_table(by_type))
    panels = {name: {_ALL: mean, **{kind: by_metric[name] for kind, by_metric in by_type.items()}} for name, mean in means.items()}
    plots = [Drawing("Mean of each metric with its interval", partial(_bars, panels))] if panels else []
    facts = [(name, value) for name, value in zip(RunFacts._fields, run.facts, strict=True) if value]
    facts.append(("questions", f"{len(run.questions):,}, from {run.source.origin}"))
    sections = [
        Section("Scores", figures, plots),
        Section("Cost", _costs_tables(run, bootstrap)),
        Section("Replies of the models", _reply_tables(run)),
        Section("Data issues", issue_tables([run])),
    ]
    return Report(f"{run.name} on {run.dataset}", facts, sections)


def _costs_tables(run: ScoredRun, bootstrap: Bootstrap) -> list[Table]:
    """Return a list with the table of costs; an empty list if the predictions record no costs."""
    means = {cost: bootstrap.interval(values) for cost, values in run.costs.items()}
    rows = [(cost, mean, float(np.nansum(run.costs[cost])), mean.n) for cost, mean in means.items() if mean.n]
    columns = (Column("cost"), Column("mean per question", brief), Column("total", brief), Column("questions"))
    note = "tokens: of prompts and answers; seconds: from a question's first request to its answer, including time spent on other questions"
    return [Table(columns, rows, "Cost", [note])] if rows else []


def _reply_tables(run: ScoredRun) -> list[Table]:
    """Return tables of yes/no questions and of fallbacks, each only if the predictions record them."""
    tables = list[Table]()
    if run.yes_no:
        n_asked, mass = run.yes_no
        low = f"below {LOW_MASS:g} on average: the scores mean little, because the model mostly answers neither yes nor no"
        columns = (Column("yes/no questions"), Column("mean probability of yes and no together", brief))
        tables.append(Table(columns, [(n_asked, mass)], "Yes/no questions", [low] if mass < LOW_MASS else []))
    if run.fallbacks:
        tables.append(Table((Column("questions"), Column("fallback")), list(run.fallbacks), "Fallbacks"))
    return tables


def issue_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return a list with the table of the runs' data issues; an empty list if there are no issues."""
    rows = [(run.name, kind, issue.n, _examples(issue), RULES[kind]) for run in runs for kind, issue in run.data_issues.items()]
    columns = (Column("run"), Column("issue"), Column("count"), Column("examples"), Column("rule"))
    return [Table(columns, rows, "Data issues")] if rows else []


def answers_json(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, Any]:
    """Return the numbers of the report as JSON values; metric values are from 0 to 1, not rounded."""
    return {
        "run": run.name,
        "predictions": str(run.predictions.path),
        "dataset": run.dataset,
        **run.facts._asdict(),
        "questions": len(run.questions),
        "questions_from": run.source.origin,
        "interval": bootstrap.to_json(),
        "metrics": {
            name: {
                **cell_json(bootstrap.interval(values)),
                "not_defined": int(np.isnan(values).sum()),
                "origin": _origin(name, run),
            }
            for name, values in run.values.items()
        },
        "types": {kind: {name: cell_json(value) for name, value in means.items()} for kind, means in _by_type(run, bootstrap).items()},
        "costs": {cost: {**cell_json(bootstrap.interval(values)), "sum": float(np.nansum(values))} for cost, values in run.costs.items()},
        "yes_no": {"asked": run.yes_no[0], "mass": run.yes_no[1]} if run.yes_no else {},
        "fallbacks": [{"questions": n, "fallback": text} for n, text in run.fallbacks],
        "data_issues": {
            kind: {"n": issue.n, "rule": RULES[kind], "examples": list(issue.examples)} for kind, issue in run.data_issues.items()
        },
        "row_metrics": {name: dict(metadata) for name, metadata in run.row_metrics.items()},
    }


def question_records(run: ScoredRun) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each question, with its answer, values and costs; undefined values are null."""
    for position, (question, row) in enumerate(zip(run.questions, run.rows, strict=True)):
        yield {
            "id": question.id,
            "question": question.text,
            "type": question.gold.get("type"),
            "golden_answers": list(question.golden_answers),
            "answer": row.answer,
            "metrics": {name: cell_json(float(values[position])) for name, values in run.values.items()},
            "costs": {cost: cell_json(float(values[position])) for cost, values in run.costs.items()},
        }


def _origin(name: str, run: ScoredRun) -> str | None:
    if name in METRICS:
        return METRICS[name].origin
    return next((origin_of(metadata) for metadata in run.row_metrics.values() if name in metadata["values"]), None)


def _by_type(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, dict[str, Interval]]:
    """Return question type -> metric -> mean; empty if the questions have fewer than two types."""
    return {
        kind: {name: bootstrap.interval(values[of_kind]) for name, values in run.values.items()} for kind, of_kind in run.types().items()
    }


def _types_table(by_type: Mapping[str, Mapping[str, Interval]]) -> Table:
    names = list(next(iter(by_type.values())))
    rows = list[list[Cell]]()
    for kind, by_metric in by_type.items():
        rows.append([kind, max((mean.n for mean in by_metric.values()), default=0), *by_metric.values()])
    columns = (Column("type"), Column("questions"), *(Column(name, percent) for name in names))
    return Table(columns, rows, "By question type of the data set, mean in %")


def row_metric_notes(run: ScoredRun) -> list[str]:
    """Return one line for each metric that a model computes over the whole run (``RowMetric``), with its settings and counts."""
    return [f"{name}: {', '.join(flatten(metadata))}" for name, metadata in run.row_metrics.items()]


def _examples(issue: Occurrences) -> str:
    more = " …" if issue.n > len(issue.examples) > 0 else ""
    return ", ".join(example if len(example) <= _SHOWN else f"{example[:_SHOWN]}…" for example in issue.examples) + more


def _bars(panels: Mapping[str, Mapping[str, Interval]]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import bars

    return bars(panels, {})

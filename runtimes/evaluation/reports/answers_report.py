"""The report on one scored run: tables and plots, JSON, and a record per question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.by_models.row_metrics import origin_of
from wikidx.runtimes.evaluation.outcomes import DO_NOT_HOLD, HOLD, count_replies, problem_masks, problems
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.run_tables import (
    abbreviate,
    answered,
    breakdown,
    breakdown_tables,
    cost_tables,
    gold_text,
    issue_tables,
    problem_tables,
    row_metric_notes,
    telling_metric,
    throughput,
)
from wikidx.runtimes.evaluation.reports.search_tables import search_plots, search_tables
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, cell_json, percent
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import RULES, ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALL = "all"
_EXAMPLES = 3  # of each outcome


def answers_report(run: ScoredRun, bootstrap: Bootstrap) -> Report:
    """Return the report on one run; notes below the scores give the metrics' origins."""
    means = {name: bootstrap.interval(values) for name, values in run.values.items()}
    groups = {f"{name}: {group}": by for name, groups in breakdown(run, bootstrap).items() for group, by in groups.items()}
    plots = [
        Drawing(f"Mean {name} with its interval", partial(_bars, name, {_ALL: mean, **{group: by[name] for group, by in groups.items()}}))
        for name, mean in means.items()
    ]
    facts = [(name.replace("_", " "), value) for name, value in zip(RunFacts._fields, run.facts, strict=True) if value]
    facts.append(("questions", f"{len(run.questions):,}, from {run.source.origin}"))
    sections = [
        Section("Scores", [_scores(run, means, bootstrap)], plots),
        Section("What went wrong", problem_tables([run], bootstrap)),
        Section("By group of questions", breakdown_tables([run], bootstrap)),
        Section("Searches", search_tables([run], bootstrap), search_plots([run], bootstrap)),
        Section("Cost", cost_tables([run], bootstrap)),
        Section("Examples", _example_tables(run)),
        Section("Data issues", issue_tables([run])),
    ]
    return Report(f"{run.name} on {run.dataset}", facts, sections)


def _scores(run: ScoredRun, means: Mapping[str, Interval], bootstrap: Bootstrap) -> Table:
    """Return the table of scores; of an unfinished run also those of the answered questions."""
    is_answered = np.array([row.answer is not None for row in run.rows])
    rows = list[list[Cell]]()
    for name, mean in means.items():
        of_answered = [] if is_answered.all() else [bootstrap.interval(run.values[name][is_answered])]
        rows.append([name, mean, *of_answered, mean.n, len(run.questions) - mean.n, answered(run)])
    columns = [Column("metric"), Column("mean, %", percent)]
    columns += [] if is_answered.all() else [Column("of the answered, %", percent)]
    columns += [Column("questions"), Column("not defined"), Column("answered")]
    origins = [f"{name}: {METRICS[name].origin}" for name in means if name in METRICS]
    return Table(columns, rows, "Scores", [f"in brackets: {bootstrap.note()}", *row_metric_notes(run), *origins])


def _example_tables(run: ScoredRun) -> list[Table]:
    """Return a list with a table of right and wrong answers; an empty list without metrics."""
    metric = telling_metric([run])
    if metric is None:
        return []
    holds = run.groups().get("passages", {})
    none = np.zeros(len(run.rows), np.bool_)
    has_answer, is_right = np.array([row.answer is not None for row in run.rows]), run.values[metric] >= 0.5
    wrong, holding, not_holding = has_answer & (run.values[metric] < 0.5), holds.get(HOLD, none), holds.get(DO_NOT_HOLD, none)
    kinds = {
        "right": is_right,
        "wrong, the passages hold an answer": wrong & holding,
        "wrong, the passages hold none": wrong & not_holding,
        "wrong": wrong & ~holding & ~not_holding,
    }
    rows = list[list[Cell]]()
    for kind, mask in kinds.items():
        for at in np.flatnonzero(mask)[:_EXAMPLES].tolist():
            question, row = run.questions[at], run.rows[at]
            found = ", ".join(sorted(problems(row))) or None
            rows.append([kind, question.id, *map(abbreviate, (question.text, gold_text(question.golden_answers), row.answer)), found])
    columns = [Column(name) for name in ("outcome", "id", "question", "gold answers", "answer", "what went wrong")]
    return [Table(columns, rows, "Examples", [f"right: {metric} is at least 0.5; the first {_EXAMPLES} of each outcome"])] if rows else []


def answers_json(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, Any]:
    """Return the numbers of the report as JSON values; metric values are from 0 to 1, not rounded."""
    return {
        "run": run.name,
        "predictions": str(run.predictions.path),
        "dataset": run.dataset,
        **run.facts._asdict(),
        "questions": len(run.questions),
        "answered": run.n_answered,
        "not_reached": run.source.n_missing,
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
        "groups": {
            name: {group: {metric: cell_json(mean) for metric, mean in means.items()} for group, means in groups.items()}
            for name, groups in breakdown(run, bootstrap).items()
        },
        "modules": {module: {"n": n, "share": n / sum(run.modules.values())} for module, n in run.modules.items()},
        "searches": {
            name: {metric: cell_json(bootstrap.interval(values)) for metric, values in by_metric.items()}
            for name, by_metric in run.recall.steps.items()
        },
        "passages_without_text": run.recall.n_unknown,
        "problems": {name: int(mask.sum()) for name, mask in problem_masks(run.rows).items()},
        "replies": count_replies(run.rows),
        "costs": {cost: {**cell_json(bootstrap.interval(values)), "sum": float(np.nansum(values))} for cost, values in run.costs.items()},
        "throughput": {name: cell_json(value) for name, value in throughput(run).items()},
        "yes_no": {"asked": run.yes_no[0], "mass": run.yes_no[1]} if run.yes_no else {},
        "fallbacks": [{"questions": n, "fallback": text} for n, text in run.fallbacks],
        "data_issues": {
            kind: {"n": issue.n, "rule": RULES[kind], "examples": list(issue.examples)} for kind, issue in run.data_issues.items()
        },
        "row_metrics": {name: dict(metadata) for name, metadata in run.row_metrics.items()},
    }


def question_records(run: ScoredRun) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each question, with its answer, groups, problems, values and costs; undefined values are null."""
    groups = run.groups()
    for position, (question, row) in enumerate(zip(run.questions, run.rows, strict=True)):
        yield {
            "id": question.id,
            "question": question.text,
            "type": question.gold.get("type"),
            "golden_answers": list(question.golden_answers),
            "answer": row.answer,
            "groups": {name: group for name, masks in groups.items() for group, mask in masks.items() if mask[position]},
            "problems": sorted(problems(row)),
            "metrics": {name: cell_json(float(values[position])) for name, values in run.values.items()},
            "searches": {
                name: {metric: cell_json(float(values[position])) for metric, values in by_metric.items()}
                for name, by_metric in run.recall.steps.items()
            },
            "costs": {cost: cell_json(float(values[position])) for cost, values in run.costs.items()},
        }


def _origin(name: str, run: ScoredRun) -> str | None:
    if name in METRICS:
        return METRICS[name].origin
    return next((origin_of(metadata) for metadata in run.row_metrics.values() if name in metadata["values"]), None)


def _bars(title: str, panel: Mapping[str, Interval]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import bars

    return bars(title, panel)

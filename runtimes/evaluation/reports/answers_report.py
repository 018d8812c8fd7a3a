"""The report on one scored run: tables and plots, JSON, and a record per question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metrics import describe_metrics, find_metric, metric_names
from wikidx.runtimes.evaluation.by_models.row_metrics import origin_of
from wikidx.runtimes.evaluation.long_table import COST, GROUP, METRIC, PROBLEM, SEARCH, Series, long_table, nest, select
from wikidx.runtimes.evaluation.outcomes import DO_NOT_HOLD, HOLD, count_replies, problems
from wikidx.runtimes.evaluation.reports.drawings import Drawing
from wikidx.runtimes.evaluation.reports.report import Report, Section
from wikidx.runtimes.evaluation.reports.run_tables import (
    abbreviate,
    answered,
    gold_text,
    issue_tables,
    row_metric_notes,
    run_sections,
    telling_metric,
    throughput,
)
from wikidx.runtimes.evaluation.reports.tables import Cell, Table, cell_json, columns, percent
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap

_ALL = "all"
_EXAMPLES = 3  # of each outcome


def answers_report(run: ScoredRun, bootstrap: Bootstrap) -> Report:
    """Return the report on one run; notes below the scores give the metrics' origins."""
    table = long_table([run], bootstrap)
    of_metrics = select(table, METRIC, GROUP)
    panels = {name: {": ".join(each.part) or _ALL: each.mean for each in of_metrics if each.metric == name} for name in run.values}
    plots = [Drawing(f"Mean {name} with its interval", "bars", (name, panel)) for name, panel in panels.items()]
    facts = [(name.replace("_", " "), value) for name, value in zip(RunFacts._fields, run.facts, strict=True) if value]
    facts.append(("questions", f"{len(run.questions):,}, from {run.source.origin}"))
    sections = [
        Section("Scores", [_scores(run, select(table, METRIC), bootstrap)], plots),
        *run_sections([run], table),
        Section("Examples", _example_tables(run)),
        Section("Data issues", issue_tables([run])),
    ]
    return Report(f"{run.name} on {run.dataset}", facts, sections)


def _scores(run: ScoredRun, metrics: Sequence[Series], bootstrap: Bootstrap) -> Table:
    """Return the table of scores; of an unfinished run also those of the answered questions."""
    is_answered = np.array([row.answer is not None for row in run.rows])
    rows = list[list[Cell]]()
    for each in metrics:
        of_answered = [] if is_answered.all() else [bootstrap.interval(each.values[is_answered])]
        rows.append([each.metric, each.mean, *of_answered, each.mean.n, each.n - each.mean.n, answered(run)])
    means = columns("mean, %", *([] if is_answered.all() else ["of the answered, %"]), show=percent)
    heads = [*columns("metric"), *means, *columns("questions", "not defined", "answered")]
    origins = [f"{name}: {find_metric(name).origin}" for name in run.values if name in metric_names()]
    return Table(heads, rows, "Scores", [f"in brackets: {bootstrap.note()}", *row_metric_notes(run), *origins])


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
    heads = columns("outcome", "id", "question", "gold answers", "answer", "what went wrong")
    return [Table(heads, rows, "Examples", [f"right: {metric} is at least 0.5; the first {_EXAMPLES} of each outcome"])] if rows else []


def answers_json(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, Any]:
    """Return the numbers of the report as JSON values; metric values are from 0 to 1, not rounded."""
    table = long_table([run], bootstrap)
    metrics, costs = select(table, METRIC), select(table, COST)
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
        "metrics": nest(
            metrics,
            lambda each: {
                **cell_json(each.mean),
                "not_defined": each.n - each.mean.n,
                "origin": _origin(each.metric, run),
                **describe_metrics([each.metric])[each.metric],
            },
        ),
        "groups": nest(select(table, GROUP), _mean),
        "modules": {module: {"n": n, "share": n / sum(run.modules.values())} for module, n in run.modules.items()},
        "searches": nest(select(table, SEARCH), _mean),
        "passages_without_text": run.recall.n_unknown,
        "problems": nest(select(table, PROBLEM), lambda each: int(each.total)),
        "replies": count_replies(run.rows),
        "costs": nest(costs, lambda each: _mean(each) | {"sum": each.total}),
        "throughput": {name: cell_json(value) for name, value in throughput(run).items()},
        "yes_no": {"asked": run.yes_no[0], "mass": run.yes_no[1]} if run.yes_no else {},
        "fallbacks": [{"questions": n, "fallback": text} for n, text in run.fallbacks],
        "data_issues": {each.issue: {"n": each.n, "rule": each.rule, "examples": list(each.examples)} for each in run.data_issues},
        "row_metrics": {name: dict(metadata) for name, metadata in run.row_metrics.items()},
    }


def question_records(run: ScoredRun) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each question, with its answer, groups, problems, values and costs; undefined values are null."""
    groups, table = run.groups(), long_table([run], Bootstrap())
    for position, (question, row) in enumerate(zip(run.questions, run.rows, strict=True)):
        yield {
            "id": question.id,
            "question": question.text,
            "type": question.gold.get("type"),
            "golden_answers": list(question.golden_answers),
            "answer": row.answer,
            "groups": {name: group for name, masks in groups.items() for group, mask in masks.items() if mask[position]},
            "problems": sorted(problems(row)),
            **{kind: nest(select(table, kind), partial(_value, position)) for kind in (METRIC, SEARCH, COST)},
        }


def _mean(series: Series) -> Any:  # noqa: ANN401 - JSON
    return cell_json(series.mean)


def _value(position: int, series: Series) -> Any:  # noqa: ANN401 - JSON
    return cell_json(float(series.values[position]))


def _origin(name: str, run: ScoredRun) -> str | None:
    if name in metric_names():
        return find_metric(name).origin
    return next((origin_of(metadata) for metadata in run.row_metrics.values() if name in metadata["values"]), None)

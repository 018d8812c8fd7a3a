"""One scored run as a report, as JSON, and question by question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.by_models.measured import origin_of, told
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, json_value, percent
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import RULES, Odd, ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALL = "all"
_SHOWN = 24  # maximum of characters of an id


def answers_report(run: ScoredRun, bootstrap: Bootstrap) -> Report:
    """Return the report of one run, with the origins of its metrics below the figures."""
    means = {name: bootstrap.interval(values) for name, values in run.values.items()}
    by_type = _by_type(run, bootstrap)
    rows = [(name, mean, mean.n, len(run.questions) - mean.n) for name, mean in means.items()]
    origins = [f"{name}: {METRICS[name].origin}" for name in means if name in METRICS]
    columns = (Column("metric"), Column("mean, %", percent), Column("questions"), Column("not defined"))
    figures = [Table(columns, rows, "Scores", [f"in brackets: {bootstrap.note()}", *measured_notes(run), *origins])]
    if by_type:
        figures.append(_types_table(by_type))
    panels = {name: {_ALL: mean, **{kind: found[name] for kind, found in by_type.items()}} for name, mean in means.items()}
    plots = [Drawing("Mean of each metric with its interval", partial(_bars, panels))] if panels else []
    facts = [(what, value) for what, value in zip(RunFacts._fields, run.facts, strict=True) if value]
    facts.append(("questions", f"{len(run.questions):,}, from {run.asked.origin}"))
    sections = [
        Section("Scores", figures, plots),
        Section("Cost", _costs_tables(run, bootstrap)),
        Section("Odd input", odd_tables([run])),
    ]
    return Report(f"{run.name} on {run.dataset}", facts, sections)


def _costs_tables(run: ScoredRun, bootstrap: Bootstrap) -> list[Table]:
    """Return the table of costs; empty if the predictions have none."""
    means = {cost: bootstrap.interval(values) for cost, values in run.costs.items()}
    rows = [(cost, mean, float(np.nansum(run.costs[cost])), mean.n) for cost, mean in means.items() if mean.n]
    columns = (Column("cost"), Column("mean a question", brief), Column("in all", brief), Column("questions"))
    note = "tokens of prompts and answers; seconds from a question's first request to its answer, with all that ran beside it"
    return [Table(columns, rows, "Cost", [note])] if rows else []


def odd_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return the table of data issues of runs; empty if there are none."""
    rows = [(run.name, kind, odd.n, _examples(odd), RULES[kind]) for run in runs for kind, odd in run.odd.items()]
    columns = (Column("run"), Column("what"), Column("how many"), Column("which"), Column("rule"))
    return [Table(columns, rows, "Odd input")] if rows else []


def answers_json(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, Any]:
    """Return the figures of one run as JSON values: shares from 0 to 1, unrounded."""
    return {
        "run": run.name,
        "predictions": str(run.predictions.path),
        "dataset": run.dataset,
        **run.facts._asdict(),
        "questions": len(run.questions),
        "questions_from": run.asked.origin,
        "interval": bootstrap.to_json(),
        "metrics": {
            name: {
                **json_value(bootstrap.interval(values)),
                "not_defined": int(np.isnan(values).sum()),
                "origin": _origin(name, run),
            }
            for name, values in run.values.items()
        },
        "types": {kind: {name: json_value(value) for name, value in found.items()} for kind, found in _by_type(run, bootstrap).items()},
        "costs": {cost: {**json_value(bootstrap.interval(values)), "sum": float(np.nansum(values))} for cost, values in run.costs.items()},
        "odd": {kind: {"n": odd.n, "rule": RULES[kind], "examples": list(odd.examples)} for kind, odd in run.odd.items()},
        "measured": {name: dict(about) for name, about in run.measured.items()},
    }


def question_records(run: ScoredRun) -> Iterator[dict[str, Any]]:
    """Yield for each question its answer and its values; null: undefined."""
    for place, (question, row) in enumerate(zip(run.questions, run.rows, strict=True)):
        yield {
            "id": question.id,
            "question": question.text,
            "type": question.gold.get("type"),
            "golden_answers": list(question.golden_answers),
            "answer": row.answer,
            "metrics": {name: json_value(float(values[place])) for name, values in run.values.items()},
            "costs": {cost: json_value(float(values[place])) for cost, values in run.costs.items()},
        }


def _origin(name: str, run: ScoredRun) -> str | None:
    if name in METRICS:
        return METRICS[name].origin
    return next((origin_of(about) for about in run.measured.values() if name in about["values"]), None)


def _by_type(run: ScoredRun, bootstrap: Bootstrap) -> dict[str, dict[str, Interval]]:
    """Return the means over the questions of each kind; empty if the set has no kinds."""
    return {
        kind: {name: bootstrap.interval(values[of_kind]) for name, values in run.values.items()} for kind, of_kind in run.types().items()
    }


def _types_table(by_type: Mapping[str, Mapping[str, Interval]]) -> Table:
    names = list(next(iter(by_type.values())))
    rows = list[list[Cell]]()
    for kind, found in by_type.items():
        rows.append([kind, max((mean.n for mean in found.values()), default=0), *found.values()])
    columns = (Column("type"), Column("questions"), *(Column(name, percent) for name in names))
    return Table(columns, rows, "By the set's own types, mean in %")


def measured_notes(run: ScoredRun) -> list[str]:
    """Return a line on each row metric: its model, rule and counts."""
    return [f"{name}: {', '.join(told(about))}" for name, about in run.measured.items()]


def _examples(odd: Odd) -> str:
    more = " …" if odd.n > len(odd.examples) > 0 else ""
    return ", ".join(example if len(example) <= _SHOWN else f"{example[:_SHOWN]}…" for example in odd.examples) + more


def _bars(panels: Mapping[str, Mapping[str, Interval]]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import bars

    return bars(panels, {})

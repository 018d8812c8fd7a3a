"""One scored run as a report, as JSON, and question by question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.evaluation.by_models.measured import origin_of, told
from wikidx.runtimes.evaluation.comparing import Run
from wikidx.runtimes.evaluation.reports.report import Drawing, Report, Section
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, json_value, percent
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import COSTS, RULES, Odd, Scored
from wikidx.runtimes.evaluation.uncertainty import FloatArray, Interval, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESAMPLES = 1000
_ALL = "all"
_SHOWN = 24  # characters of an id


def interval_note(level: float, seed: int) -> str:
    """Return how the intervals were made."""
    return f"in brackets: {100 * level:g} % intervals, percentile bootstrap over questions, {RESAMPLES:,} resamples, seed {seed}"


def answers_report(run: Run, metrics: Mapping[str, Metric], *, level: float = 0.95, seed: int = 0) -> Report:
    """Return the report of one run.

    Args:
        run: scored.
        metrics: by name; what they say of their origin stands below the figures.
        level: of the intervals.
        seed: of their resamples.
    """
    scored = run.scored
    means = {name: interval(values, level=level, n=RESAMPLES, seed=seed) for name, values in scored.values.items()}
    by_type = _by_type(scored, level, seed)
    rows = [(name, mean, mean.n, len(scored.questions) - mean.n) for name, mean in means.items()]
    origins = [f"{name}: {metrics[name].origin}" for name in means if name in metrics]
    columns = (Column("metric"), Column("mean, %", percent), Column("questions"), Column("not defined"))
    figures = [Table(columns, rows, "Scores", [interval_note(level, seed), *measured_notes(scored), *origins])]
    if by_type:
        figures.append(_types_table(by_type))
    panels = {name: {_ALL: mean, **{kind: found[name] for kind, found in by_type.items()}} for name, mean in means.items()}
    plots = [Drawing("Mean of each metric with its interval", partial(_bars, panels))] if panels else []
    facts = [*facts_of(run), ("questions", f"{len(scored.questions):,}, from {scored.asked.origin}")]
    sections = [
        Section("Scores", figures, plots),
        Section("Cost", costs_tables(scored, level, seed)),
        Section("Odd input", odd_tables([run])),
    ]
    return Report(f"{run.name} on {run.dataset}", facts, sections)


def facts_of(run: Run) -> list[tuple[str, str]]:
    """Return what a run was made with, as far as it is known."""
    return [(what, value) for what, value in zip(RunFacts._fields, run.facts, strict=True) if value]


def costs_tables(scored: Scored, level: float, seed: int) -> list[Table]:
    """Return the table of what answers cost; none if the predictions do not tell."""
    known = {cost: values for cost, values in scored.costs.items() if not np.isnan(values).all()}
    rows = [
        (cost, mean := interval(values, level=level, n=RESAMPLES, seed=seed), float(np.nansum(values)), mean.n)
        for cost, values in known.items()
    ]
    columns = (Column("cost"), Column("mean a question", brief), Column("in all", brief), Column("questions"))
    note = "tokens of prompts and answers; seconds from a question's first request to its answer, with all that ran beside it"
    return [Table(columns, rows, "Cost", [note])] if rows else []


def odd_tables(runs: Sequence[Run]) -> list[Table]:
    """Return the table of what was odd in the input of runs; none if nothing was."""
    rows = [(run.name, kind, odd.n, _examples(odd), RULES[kind]) for run in runs for kind, odd in run.scored.odd.items()]
    columns = (Column("run"), Column("what"), Column("how many"), Column("which"), Column("rule"))
    return [Table(columns, rows, "Odd input")] if rows else []


def answers_json(run: Run, metrics: Mapping[str, Metric], *, level: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Return the figures of one run as JSON has them: shares from 0 to 1, unrounded."""
    scored = run.scored
    by_type = _by_type(scored, level, seed)
    return {
        "run": run.name,
        "predictions": str(scored.predictions.path),
        "dataset": run.dataset,
        **run.facts._asdict(),
        "questions": len(scored.questions),
        "questions_from": scored.asked.origin,
        "interval": {"level": level, "method": "percentile bootstrap", "resamples": RESAMPLES, "seed": seed},
        "metrics": {
            name: {**_mean(values, level, seed), "not_defined": int(np.isnan(values).sum()), "origin": _origin(name, metrics, scored)}
            for name, values in scored.values.items()
        },
        "types": {kind: {name: json_value(mean) for name, mean in found.items()} for kind, found in by_type.items()},
        "costs": {cost: {**_mean(scored.costs[cost], level, seed), "sum": float(np.nansum(scored.costs[cost]))} for cost in COSTS},
        "odd": {kind: {"n": odd.n, "rule": RULES[kind], "examples": list(odd.examples)} for kind, odd in scored.odd.items()},
        "measured": {name: dict(about) for name, about in scored.measured.items()},
    }


def question_records(scored: Scored) -> Iterator[dict[str, Any]]:
    """Yield for each question its answer and its values; null: not defined."""
    for place, (question, row) in enumerate(zip(scored.questions, scored.rows, strict=True)):
        yield {
            "id": question.id,
            "question": question.text,
            "type": question.gold.get("type"),
            "golden_answers": list(question.golden_answers),
            "answer": row.answer,
            "metrics": {name: json_value(float(values[place])) for name, values in scored.values.items()},
            "costs": {cost: json_value(float(values[place])) for cost, values in scored.costs.items()},
        }


def _mean(values: FloatArray, level: float, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = json_value(interval(values, level=level, n=RESAMPLES, seed=seed))
    return found


def _origin(name: str, metrics: Mapping[str, Metric], scored: Scored) -> str | None:
    if name in metrics:
        return metrics[name].origin
    return next((origin_of(about, name) for about in scored.measured.values() if name in about["values"]), None)


def _by_type(scored: Scored, level: float, seed: int) -> dict[str, dict[str, Interval]]:
    """Return the means over the questions of each kind; empty if the set has no kinds."""
    return {
        kind: {name: interval(values[of_kind], level=level, n=RESAMPLES, seed=seed) for name, values in scored.values.items()}
        for kind, of_kind in scored.types().items()
    }


def _types_table(by_type: Mapping[str, Mapping[str, Interval]]) -> Table:
    names = list(next(iter(by_type.values())))
    rows = list[list[Cell]]()
    for kind, found in by_type.items():
        rows.append([kind, max((mean.n for mean in found.values()), default=0), *found.values()])
    columns = (Column("type"), Column("questions"), *(Column(name, percent) for name in names))
    return Table(columns, rows, "By the set's own types, mean in %")


def measured_notes(scored: Scored) -> list[str]:
    """Return a line on each row metric: its model, its rule, and what it counted."""
    return [f"{name}: {', '.join(told(about))}" for name, about in scored.measured.items()]


def _examples(odd: Odd) -> str:
    more = " …" if odd.n > len(odd.examples) > 0 else ""
    return ", ".join(example if len(example) <= _SHOWN else f"{example[:_SHOWN]}…" for example in odd.examples) + more


def _bars(panels: Mapping[str, Mapping[str, Interval]]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import bars

    return bars(panels, {})

"""The report on all runs of a folder: one table with a row per run, and means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wikidx.runtimes.evaluation.comparing import metric_names
from wikidx.runtimes.evaluation.long_table import COST, METRIC, PROBLEM, long_table, nest, select
from wikidx.runtimes.evaluation.reports.comparison_report import seed_tables
from wikidx.runtimes.evaluation.reports.report import Report, Section
from wikidx.runtimes.evaluation.reports.run_tables import answered, issue_tables
from wikidx.runtimes.evaluation.reports.tables import Cell, Table, brief, columns, percent
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap

_PROBLEMS = ("failed", "empty", "cut", "unparsed", "degraded")
_COSTS = ("tokens", "calls", "searches", "service")


def folder_report(folder: str, runs: Sequence[ScoredRun], left_out: Mapping[str, str], bootstrap: Bootstrap) -> Report:
    """Return the report; ``left_out`` is name -> error of the runs that could not be scored."""
    problems = [Table(columns("run", "why"), list(left_out.items()), "Left out")] if left_out else []
    sections = [
        Section("Runs", [_runs(runs, bootstrap)]),
        Section("Several seeds", seed_tables(runs)),
        Section("Left out", problems),
        Section("Data issues", issue_tables(runs)),
    ]
    return Report(f"Runs in {folder}", [], sections)


def _runs(runs: Sequence[ScoredRun], bootstrap: Bootstrap) -> Table:
    names, rows, table = metric_names(runs), list[list[Cell]](), long_table(runs, bootstrap)
    means, costs = (nest(select(table, kind), lambda each: each.mean, by_run=True) for kind in (METRIC, COST))
    counts = nest(select(table, PROBLEM), lambda each: int(each.total), by_run=True)
    for run in runs:
        facts = run.facts
        search = ", ".join(filter(None, (facts.retriever, facts.corpus))) or None
        row: list[Cell] = [run.name, run.dataset, facts.method, facts.answered_by or facts.model, search, facts.seed, answered(run)]
        row += [*map(means.get(run.name, {}).get, names), *map(counts[run.name].get, _PROBLEMS)]
        rows.append([*row, *(costs[run.name][cost].mean for cost in _COSTS), run.wall_seconds])
    heads = columns("run", "data set", "method", "model", "retriever, corpus", "seed", "answered")
    heads += columns(*(f"{name}, %" for name in names), show=percent)
    heads += columns(*_PROBLEMS) + columns(*_COSTS, "wall, s", show=brief)
    notes = [
        f"in brackets: {bootstrap.note()}; questions without an answer count 0",
        f"{', '.join(_PROBLEMS)}: numbers of questions; {', '.join(_COSTS)}: means per question, service in seconds",
    ]
    return Table(heads, rows, "Runs", notes)

"""Tables on one run or several: problems, breakdowns, costs, data issues. A table on one run has no column "run"."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np

from wikidx.runtimes.evaluation.by_models.row_metrics import flatten
from wikidx.runtimes.evaluation.data_issues import DataIssue
from wikidx.runtimes.evaluation.long_table import COST, GROUP, PROBLEM, Series, nest, pivot, select
from wikidx.runtimes.evaluation.outcomes import PROBLEMS, count_replies
from wikidx.runtimes.evaluation.predictions import MODULES
from wikidx.runtimes.evaluation.reports.drawings import Drawing
from wikidx.runtimes.evaluation.reports.report import Section
from wikidx.runtimes.evaluation.reports.search_tables import search_plots, search_tables
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, brief, columns, percent
from wikidx.runtimes.evaluation.scoring import COSTS, ScoredRun
from wikidx.runtimes.llms.text import LOW_MASS

_SHOWN = 24  # displayed characters of an id
_SHOWN_TEXT = 100  # of a question or an answer
_COST_NOTE = (
    "tokens: of prompts and answers; service: seconds that a question's own requests took; seconds: from its first request to its answer, "
    "with the time spent on other questions"
)


def answered(run: ScoredRun) -> str:
    """Return the share of questions with an answer, such as "50 of 100"."""
    return f"{run.n_answered:,} of {len(run.questions) + run.source.n_missing:,}"


def run_sections(runs: Sequence[ScoredRun], table: Sequence[Series], cost_plots: Sequence[Drawing] = ()) -> list[Section]:
    """Return the sections on what is behind the scores of runs; ``table`` is their long table."""
    return [
        Section("What went wrong", _problem_tables(runs, table)),
        Section("By group of questions", _breakdown_tables(runs, table)),
        Section("Searches", search_tables(runs, table), search_plots(table)),
        Section("Cost", _cost_tables(runs, table), cost_plots),
    ]


def _problem_tables(runs: Sequence[ScoredRun], table: Sequence[Series]) -> list[Table]:
    """Return the table of what went wrong, and those of fallbacks and of yes/no questions if the predictions record any."""
    found = select(table, PROBLEM)
    tables = [_problems_of_one(runs[0], found) if len(runs) == 1 else _problems_of_several(runs, found)]
    fallbacks: list[list[Cell]] = [[run.name, n, text] for run in runs for n, text in run.fallbacks]
    masses = [(run.name, *run.yes_no) for run in runs if run.yes_no]
    low = f"below {LOW_MASS:g} on average: the scores mean little, because the model mostly answers neither yes nor no"
    if fallbacks:
        tables.append(_table(runs, columns("questions", "fallback"), fallbacks, "Fallbacks"))
    if masses:
        heads = [*columns("yes/no questions"), *columns("mean probability of yes and no together", show=brief)]
        tables.append(_table(runs, heads, masses, "Yes/no questions", [low] if any(mass < LOW_MASS for *_, mass in masses) else []))
    return tables


def _problems_of_one(run: ScoredRun, found: Sequence[Series]) -> Table:
    masks, replies, n = {each.metric: each.values > 0 for each in found}, count_replies(run.rows), len(run.questions)
    clean = ~np.logical_or.reduce(list(masks.values()))
    metric = telling_metric([run])
    rows = list[list[Cell]]()
    for name, mask in (*masks.items(), ("none of these", clean)):
        of_replies = replies.get(name) if name != "texts" else None
        share = of_replies / replies["texts"] if of_replies is not None and replies["texts"] else None
        means = [found[0].bootstrap.interval(run.values[metric][mask])] if metric else []
        rows.append([name, int(mask.sum()), float(mask.sum() / n), of_replies, share, *means, PROBLEMS.get(name)])
    heads = columns("what", "questions") + columns("of all, %", show=percent) + columns("replies")
    heads += columns("of all replies, %", *([f"{metric} of these, %"] if metric else []), show=percent) + columns("meaning")
    return Table(heads, rows, "What went wrong", ["a question may have several problems"])


def _problems_of_several(runs: Sequence[ScoredRun], found: Sequence[Series]) -> Table:
    counts = nest(found, lambda each: int(each.total), by_run=True)
    rows: list[list[Cell]] = [[run.name, len(run.questions), *map(counts[run.name].get, PROBLEMS)] for run in runs]
    notes = [f"{name}: {meaning}" for name, meaning in PROBLEMS.items()]
    return Table(columns("run", "questions", *PROBLEMS), rows, "What went wrong, number of questions", notes)


def _breakdown_tables(runs: Sequence[ScoredRun], table: Sequence[Series]) -> list[Table]:
    """Return the tables of means by group of questions and of RA-ISF's modules, each only if there are groups or modules."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.values))
    rows = pivot(select(table, GROUP), metrics, with_n=True)
    notes = [
        "of the questions that the run has reached; passages: whether title or text of a passage of the prediction has a gold answer ("
        "DPR's has_answer); yes and no: the probability that the models gave the two answers together"
    ]
    heads = columns("by", "group", "questions") + columns(*metrics, show=percent)
    return ([_table(runs, heads, rows, "By group of questions, mean in %", notes)] if rows else []) + _module_tables(runs)


def _module_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return a list with the table of the questions and sub-questions that RA-ISF's modules answered; an empty list without such runs."""
    totals = [(run, sum(run.modules.values())) for run in runs if run.modules]
    rows: list[list[Cell]] = [[run.name, total, *(n / total for n in run.modules.values())] for run, total in totals]
    notes = [
        "number of all questions and sub-questions, and the share that each module answered; fallback: by the option if_none_answered, "
        "without an answered sub-question; unanswered: the answer is unknown, for instance beyond the depth limit; sub-questions per "
        "question: see Cost"
    ]
    heads = columns("number") + columns(*MODULES, show=percent)
    return [_table(runs, heads, rows, "Questions and sub-questions by RA-ISF's module, in %", notes)] if rows else []


def _cost_tables(runs: Sequence[ScoredRun], table: Sequence[Series]) -> list[Table]:
    """Return the tables of costs per question and of throughput, each only if the predictions record it."""
    tables = list[Table]()
    costs = select(table, COST)
    recorded = [cost for cost in COSTS if any(each.mean.n for each in costs if each.metric == cost)]
    if recorded and len(runs) == 1:
        totals = [(each.metric, each.mean, each.total, each.mean.n) for each in costs if each.metric in recorded]
        heads = [*columns("cost"), *columns("mean per question", "total", show=brief), *columns("questions")]
        tables.append(Table(heads, totals, "Cost", [_COST_NOTE]))
    elif recorded:
        tables.append(_table(runs, columns(*recorded, show=brief), pivot(costs, recorded), "Cost, mean per question", [_COST_NOTE]))
    return tables + _throughput_tables(runs)


def throughput(run: ScoredRun) -> dict[str, float]:
    """Return wall time, questions and tokens a second, and requests at a time of a run; NaN: not recorded."""
    wall, costs = run.wall_seconds or np.nan, {cost: float(np.nansum(run.costs[cost])) for cost in COSTS}
    speeds = {"prompt_tokens_per_s": costs["prompt_tokens"], "completion_tokens_per_s": costs["completion_tokens"]}
    answers = {"wall_s": run.wall_seconds, "questions_per_s": run.n_answered / wall}
    return {**answers, **{name: n / wall for name, n in speeds.items()}, "requests_at_a_time": costs["service"] / wall}


def _throughput_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    rows: list[list[Cell]] = [[run.name, *throughput(run).values()] for run in runs if np.isfinite(run.wall_seconds)]
    names = ("wall time, s", "questions/s", "prompt tokens/s", "generated tokens/s", "requests at a time")
    notes = ["of all starts of the run, without the opening of models; tokens include those of replies that were cached or reused"]
    return [_table(runs, columns(*names, show=brief), rows, "Throughput of the run", notes)] if rows else []


def issue_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return a list with the table of the runs' data issues; an empty list if there are no issues."""
    issues = [each._replace(source=run.name) for run in runs for each in run.data_issues]
    return issue_table(issues, "run" if len(runs) > 1 else None)


def issue_table(issues: Sequence[DataIssue], source: str | None) -> list[Table]:
    """Return a list with the table of data issues, whose sources have a column of this heading; an empty list if there are no issues."""
    rows: list[list[Cell]] = [[each.source, each.issue, each.n, _examples(each), each.rule] for each in issues]
    heads, first = columns(source or "", "issue", "count", "examples", "rule"), 0 if source else 1
    return [Table(heads[first:], [row[first:] for row in rows], "Data issues")] if rows else []


def telling_metric(runs: Sequence[ScoredRun]) -> str | None:
    """Return the first metric that all runs have and in which not all values of all runs are 0; None without a common metric."""
    common = [name for name in runs[0].values if all(name in run.values for run in runs)]
    return next((name for name in common if any(np.nansum(run.values[name]) for run in runs)), common[0] if common else None)


def gold_text(golden_answers: tuple[str, ...]) -> str | None:
    """Return gold answers as one text; None without any."""
    return " / ".join(golden_answers) or None


def abbreviate(text: str | None) -> str | None:
    """Shorten a text for a cell of a table."""
    return None if text is None else textwrap.shorten(text, _SHOWN_TEXT, placeholder=" …")


def row_metric_notes(run: ScoredRun) -> list[str]:
    """Return one line for each metric that a model computes over the whole run (``RowMetric``), with its settings and counts."""
    return [f"{name}: {', '.join(flatten(metadata))}" for name, metadata in run.row_metrics.items()]


def _table(
    runs: Sequence[ScoredRun], heads: Sequence[Column], rows: Sequence[Sequence[Cell]], title: str, notes: Sequence[str] = ()
) -> Table:
    """Return a table whose rows begin with the name of a run; for a single run, without these names."""
    first = 1 if len(runs) == 1 else 0
    return Table([*columns("run"), *heads][first:], [row[first:] for row in rows], title, notes)


def _examples(issue: DataIssue) -> str:
    more = " …" if issue.n > len(issue.examples) > 0 else ""
    return ", ".join(example if len(example) <= _SHOWN else f"{example[:_SHOWN]}…" for example in issue.examples) + more

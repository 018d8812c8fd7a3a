"""The report on several scored runs, compared with one another and with the papers' figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.comparing import (
    SERVICE,
    Difference,
    PublishedResult,
    compare_pairs,
    find_examples,
    group_by_dataset,
    group_seeds,
    match_published,
    metric_names,
    question_positions,
)
from wikidx.runtimes.evaluation.long_table import COST, METRIC, long_table, nest, select
from wikidx.runtimes.evaluation.reports.answers_report import answers_json
from wikidx.runtimes.evaluation.reports.drawings import Drawing, Mark, Point
from wikidx.runtimes.evaluation.reports.report import Report, Section
from wikidx.runtimes.evaluation.reports.run_tables import (
    abbreviate,
    answered,
    gold_text,
    issue_tables,
    row_metric_notes,
    run_sections,
    telling_metric,
)
from wikidx.runtimes.evaluation.reports.tables import Cell, Spread, Table, brief, cell_json, columns, p_value, percent, signed_percent
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

PAPERS_NOTE = (
    "the paper's: the value in the paper's table, measured with the language model, retriever and questions of this row; ours: the value "
    "of a run with the same method, measured with the settings named under Runs; comparable: whether questions and corpus are the same"
)
_COSTS = {"tokens": "tokens per question", "calls": "model calls per question", SERVICE: "seconds of service per question"}
_EXAMPLES = 5  # wins, and as many losses

_Means = Mapping[str, Mapping[str, Interval]]
"""Run -> metric or cost -> mean."""


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


def compare(
    runs: Sequence[ScoredRun],
    bootstrap: Bootstrap,
    *,
    every_pair: bool = False,
    every_paper: bool = False,
) -> Comparison:
    """Compare runs; ``every_pair`` is passed to ``compare_pairs``, and ``every_paper`` to ``match_published`` as ``include_all``."""
    differing = list(compare_pairs(runs, bootstrap, every_pair=every_pair))
    return Comparison(runs, differing, match_published(runs, bootstrap, include_all=every_paper), bootstrap)


def comparison_report(comparison: Comparison) -> Report:
    """Return a comparison's report: tables and plots."""
    runs, table = comparison.runs, long_table(comparison.runs, comparison.bootstrap)
    means = nest(select(table, METRIC, COST), lambda each: each.mean, by_run=True)
    sets = group_by_dataset(runs)
    scores = [_scores_table(of_set, means, f"Scores on {dataset}, mean in %", comparison.bootstrap) for dataset, of_set in sets.items()]
    bars = [_bars(comparison, dataset, name, means) for dataset, of_set in sets.items() for name in metric_names(of_set)]
    tradeoffs = [plot for of_set in sets.values() for plot in _cost_plots(of_set, means)]
    sections = [
        Section("Runs", [_runs(runs)]),
        Section("Scores", [*scores, *seed_tables(runs)], bars),
        Section("Differences", _differences(comparison)),
        *run_sections(runs, table, tradeoffs),
        Section("Examples", _examples(comparison)),
        Section("Published results", _papers(comparison)),
        Section("Data issues", issue_tables(runs)),
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
        "seeds": seeds_json(comparison.runs),
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


def seeds_json(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return means and standard deviations over runs that differ in the seed alone as JSON values."""
    return [
        {
            "runs": [run.name for run in group],
            "seeds": [run.facts.seed for run in group],
            "metrics": {name: cell_json(spread) for name, spread in spreads.items()},
        }
        for group, spreads in seed_spreads(runs)
    ]


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
    fields = [field for field in runs[0].facts._fields if any(getattr(run.facts, field) for run in runs)]
    rows = [(run.name, run.dataset, answered(run), *(getattr(run.facts, field) or None for field in fields)) for run in runs]
    return Table(columns("run", "data set", "answered", *(name.replace("_", " ") for name in fields)), rows, "Runs")


def _scores_table(runs: Sequence[ScoredRun], means: _Means, title: str, bootstrap: Bootstrap) -> Table:
    """Return the table of the runs' scores, with the share of questions that each run has answered."""
    names = metric_names(runs)
    rows: list[list[Cell]] = [[run.name, answered(run), *map(means[run.name].get, names)] for run in runs]
    heads = columns("run", "answered") + columns(*names, show=percent)
    notes = [f"in brackets: {bootstrap.note()}", *(f"{run.name}, {note}" for run in runs for note in row_metric_notes(run))]
    if any(run.n_answered < len(run.questions) for run in runs):
        notes.append("answered: the other questions count 0 in the means")
    return Table(heads, rows, title, notes)


def seed_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return a list with the table of means over runs that differ in the seed alone; an empty list without such runs."""
    names, rows = metric_names(runs), list[list[Cell]]()
    for group, spreads in seed_spreads(runs):
        first = group[0]
        seeds, shares = ", ".join(run.facts.seed for run in group), ", ".join(dict.fromkeys(map(answered, group)))
        rows.append([", ".join(run.name for run in group), first.dataset, seeds, len(group), shares, *map(spreads.get, names)])
    heads = columns("runs", "data set", "seeds", "number", "answered") + columns(*names, show=percent)
    note = "mean ± sample standard deviation of the runs' means"
    return [Table(heads, rows, "Several seeds, mean in %", [note])] if rows else []


def seed_spreads(runs: Sequence[ScoredRun]) -> list[tuple[list[ScoredRun], dict[str, Spread]]]:
    """Return the groups of runs that differ in the seed alone, each with metric -> mean and standard deviation of the runs' means."""
    spreads = list[tuple[list[ScoredRun], dict[str, Spread]]]()
    for group in group_seeds(runs):
        means = {name: np.array([Bootstrap(n=1).interval(run.values[name]).mean for run in group]) for name in metric_names(group[:1])}
        spreads.append((group, {name: Spread(float(of.mean()), float(of.std(ddof=1)), len(of)) for name, of in means.items()}))
    return spreads


def _examples(comparison: Comparison) -> list[Table]:
    """Return a table of wins and losses for each pair of runs."""
    by_name, tables = {(run.dataset, run.name): run for run in comparison.runs}, list[Table]()
    for dataset, first, second in dict.fromkeys((item.dataset, item.first, item.second) for item in comparison.differences):
        pair = [by_name[dataset, first], by_name[dataset, second]]
        metric = telling_metric(pair)
        found = find_examples(pair[0], pair[1], metric, _EXAMPLES) if metric else []
        rows: list[list[Cell]] = [
            [
                example.outcome,
                example.question.id,
                *map(abbreviate, (example.question.text, gold_text(example.question.golden_answers), *example.answers)),
            ]
            for example in found
        ]
        heads = columns("outcome", "id", "question", "gold answers", first, second)
        note = f"win: {first} scores higher by {metric}; up to {_EXAMPLES} wins and losses, the largest differences first"
        if rows:
            tables.append(Table(heads, rows, f"Examples on {dataset}, {first} against {second}", [note]))
    return tables


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
    firsts = {difference.first for difference in comparison.differences}
    winner = firsts.pop() if len(firsts) == 1 else "the run before the minus sign"
    unfinished = [run for run in comparison.runs if run.n_answered < len(run.questions)]
    heads = columns("data set", "metric", "runs") + columns("difference, points", show=signed_percent) + columns("p", show=p_value)
    heads += columns("questions", "wins", "losses", "ties", "not in both")
    notes = [
        f"questions: those of both runs on which the metric is defined; wins: questions on which {winner} scores higher",
        f"p: two-sided paired randomisation test, not corrected for the {len(rows)} comparisons of this table",
        "not in both: questions of only one run, and different questions under the same id",
        *(f"{run.name} has answered {answered(run)} questions: the others count 0" for run in unfinished),
    ]
    return [Table(heads, rows, "Differences, paired by question", notes)] if rows else []


def _papers(comparison: Comparison) -> list[Table]:
    shares = [result for result in comparison.published if result.metric != SERVICE]
    seconds = [result for result in comparison.published if result.metric == SERVICE]
    groups = (("in %", shares, percent), ("seconds per question", seconds, brief))
    return [_papers_table(comparison, f"Published results and ours, {unit}", quotes, show) for unit, quotes, show in groups if quotes]


def _papers_table(
    comparison: Comparison,
    title: str,
    quotes: Sequence[PublishedResult],
    show: Callable[[Cell], str],
) -> Table:
    names, rows = [run.name for run in comparison.runs], list[list[Cell]]()
    for published, metric, own_results in quotes:
        values = {own.run: own.value for own in own_results}
        obstacles = list(dict.fromkeys(own.obstacles for own in own_results))
        comparable = "; ".join("yes" if not why else f"no: {why}" for why in obstacles) or None
        search = ", ".join(filter(None, (published.retriever, published.corpus))) or None
        cells = [published.dataset, published.source, published.system, published.model, search, published.questions]
        rows.append([*cells, f"{published.metric}, our {metric}", published.value, *map(values.get, names), comparable])
    heads = columns("data set", "paper", "system", "LLM", "retriever, corpus", "questions", "metric")
    heads += columns("the paper's", *(f"ours: {name}" for name in names), show=show) + columns("comparable, theirs / ours")
    return Table(heads, rows, title, [PAPERS_NOTE])


def _bars(comparison: Comparison, dataset: str, metric: str, means: _Means) -> Drawing:
    """Return the plot of a metric on a data set, with the papers' comparable figures as marks."""
    marks = [
        Mark(ours.run, result.published.paper, result.published.value)
        for result in comparison.published
        if (result.published.dataset, result.metric) == (dataset, metric)
        for ours in result.own_results
        if not ours.obstacles
    ]
    panel = {run.name: means[run.name].get(metric) for run in comparison.runs if run.dataset == dataset}
    alt = f"{dataset}: mean {metric} of each run with its interval; marks: published results"
    return Drawing(alt, "bars", (f"{dataset}, {metric}", panel, marks))


def _cost_plots(runs: Sequence[ScoredRun], means: _Means) -> list[Drawing]:
    """Return a plot of accuracy against each cost that at least two runs record; an empty list without metrics."""
    metric, plots = telling_metric(runs), list[Drawing]()
    for cost, label in _COSTS.items():
        points = {run.name: Point(means[run.name][cost], means[run.name][metric]) for run in runs} if metric else {}
        if sum(point.cost.n > 0 for point in points.values()) > 1:
            drawn = {name: point for name, point in points.items() if point.cost.n and point.accuracy.n}
            title = f"{runs[0].dataset}: {metric}"
            plots.append(Drawing(f"{title} against {label}", "tradeoff", (drawn, label, title)))
    return plots

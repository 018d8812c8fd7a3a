"""Tables and plots of the searches that runs record: R@k by the step of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from wikidx.runtimes.evaluation.comparing import group_by_dataset
from wikidx.runtimes.evaluation.reports.report import Drawing
from wikidx.runtimes.evaluation.reports.tables import Cell, Column, Table, percent
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.step_recall import LAST, Values
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_TEXTS = "searches are left out that found passages whose texts this machine does not have"

_NOTE = (
    "R@k: of the questions with this search, those with a gold answer in the text of one of its first k passages (DPR's has_answer); "
    "questions whose answer is yes, no or a label are left out"
)


def search_tables(runs: Sequence[ScoredRun], bootstrap: Bootstrap) -> list[Table]:
    """Return a list with the table of R@k of each search; an empty list if no run records a search."""
    metrics = [name for name in RECALL_METRICS if any(name in values for run in runs for values in _shown(run).values())]
    rows = list[list[Cell]]()
    for run in runs:
        for name, values in _shown(run).items():
            means = {metric: bootstrap.interval(each) for metric, each in values.items()}
            rows.append([run.name, name, next(iter(means.values())).n, *map(means.get, metrics)])
    unknown = [f"{run.name}: {NO_TEXTS} ({run.recall.n_unknown:,} passages)" for run in runs if run.recall.n_unknown]
    if not rows and not unknown:
        return []
    columns = [*map(Column, ("run", "search", "questions")), *(Column(f"R@{RECALL_METRICS[name]}", percent) for name in metrics)]
    first = 1 if len(runs) == 1 else 0
    return [Table(columns[first:], [row[first:] for row in rows], "Searches, R@k in %", [_NOTE, *unknown])]


def search_plots(runs: Sequence[ScoredRun], bootstrap: Bootstrap) -> list[Drawing]:
    """Return for each data set a plot of R@k against k, with a line for each search of each run."""
    plots = list[Drawing]()
    for dataset, group in group_by_dataset(runs).items():
        lines = {
            f"{run.name}, {name}" if len(runs) > 1 else name: {
                RECALL_METRICS[metric]: bootstrap.interval(each) for metric, each in values.items()
            }
            for run in group
            for name, values in _shown(run).items()
        }
        if any(len(line) > 1 for line in lines.values()):
            plots.append(Drawing(f"R@k of each search on {dataset}", partial(_curves, f"Passages of the searches on {dataset}", lines)))
    return plots


def _shown(run: ScoredRun) -> Mapping[str, Values]:
    """Return the searches of a run; each question's last search is among them if it is not the only one."""
    steps = run.recall.steps
    return {name: values for name, values in steps.items() if name != LAST or len(steps) > 2}


def _curves(title: str, lines: Mapping[str, Mapping[int, Interval]]) -> Figure:
    from wikidx.runtimes.evaluation.reports.plots import curves

    return curves(title, lines, measure="R")

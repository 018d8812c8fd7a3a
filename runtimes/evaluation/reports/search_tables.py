"""Tables and plots of the searches that runs record: R@k by the step of the search."""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.long_table import SEARCH, Series, pivot, select
from wikidx.runtimes.evaluation.reports.drawings import Drawing
from wikidx.runtimes.evaluation.reports.tables import Table, columns, percent
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.step_recall import LAST
from wikidx.runtimes.evaluation.uncertainty import Interval

NO_TEXTS = "searches are left out that found passages whose texts this machine does not have"

_NOTE = (
    "R@k: of the questions with this search, those with a gold answer in the text of one of its first k passages (DPR's has_answer); "
    "questions whose answer is yes, no or a label are left out"
)


def search_tables(runs: Sequence[ScoredRun], table: Sequence[Series]) -> list[Table]:
    """Return a list with the table of R@k of each search; an empty list if no run records a search."""
    shown = [each for run in runs for each in _shown(table, run.name)]
    metrics = [name for name in RECALL_METRICS if any(each.metric == name for each in shown)]
    rows = pivot(shown, metrics, with_n=True)
    unknown = [f"{run.name}: {NO_TEXTS} ({run.recall.n_unknown:,} passages)" for run in runs if run.recall.n_unknown]
    if not rows and not unknown:
        return []
    heads = columns("run", "search", "questions") + columns(*(f"R@{RECALL_METRICS[name]}" for name in metrics), show=percent)
    first = 1 if len(runs) == 1 else 0
    return [Table(heads[first:], [row[first:] for row in rows], "Searches, R@k in %", [_NOTE, *unknown])]


def search_plots(table: Sequence[Series]) -> list[Drawing]:
    """Return for each data set a plot of R@k against k, with a line for each search of each run."""
    runs, by_dataset = dict.fromkeys(each.run for each in table), dict[str, dict[str, dict[int, Interval]]]()
    for each in (each for run in runs for each in _shown(table, run)):
        name = ", ".join((*([each.run] if len(runs) > 1 else []), *each.part))
        by_dataset.setdefault(each.dataset, {}).setdefault(name, {})[RECALL_METRICS[each.metric]] = each.mean
    return [
        Drawing(f"R@k of each search on {dataset}", "curves", (f"Passages of the searches on {dataset}", lines, "R"))
        for dataset, lines in by_dataset.items()
        if any(len(line) > 1 for line in lines.values())
    ]


def _shown(table: Sequence[Series], run: str) -> list[Series]:
    """Return the searches of a run; each question's last search is among them if it is not the only one."""
    searches = [each for each in select(table, SEARCH) if each.run == run]
    return [each for each in searches if each.part != (LAST,) or len({each.part for each in searches}) > 2]

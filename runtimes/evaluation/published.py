"""The figures in the four papers' tables, for comparison with ours; ``PublishedFigure`` records the conditions of each figure.

The file ``published.json`` has five parts:

papers    paper -> title, arXiv number, retriever, corpus, k, and questions by dataset
results   rows ``[paper, table, language model, setting, system, our corresponding method or null, {dataset: {metric: value}}]``
corpora   the papers' corpus -> our corpora with the same texts
metrics   the papers' metric -> dataset -> our metrics, the closest first
files     dataset -> words that identify the dataset in a file's name
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any, NamedTuple

_PER_CENT = 100
_MIN_LETTERS = 5  # a shorter dataset name must be a separate word of the file's name
_NOT_STATED = "not stated"
LATENCY = "latency_s"  # the metric of figures in seconds
_CLOSED_BOOK = ("direct", "cot", "least_to_most", "genread")


class PublishedFigure(NamedTuple):
    """A figure of a paper.

    Attributes:
        paper, table: the source.
        model: the language model, or "not stated".
        setting: further settings in the table.
        system: the system's name in the table.
        method: our corresponding method; None if there is none, for instance for an ablation.
        dataset, metric: the paper's dataset and metric, as in ``published.json``.
        own_metrics: names of our corresponding metrics, the closest first; empty if there are none for the dataset.
        value: a share from 0 to 1; for the metric "latency_s", seconds.
        retriever, corpus: those of the experiment; empty for a closed-book method.
        questions: a description of the evaluated questions.
        k: passages per search; 0 for a closed-book method.
    """

    paper: str
    table: str
    model: str
    setting: str
    system: str
    method: str | None
    dataset: str
    metric: str
    own_metrics: tuple[str, ...]
    value: float
    retriever: str
    corpus: str
    questions: str
    k: int

    @property
    def n_questions(self) -> int | None:
        """The number of evaluated questions; None: not stated."""
        number = re.search(r"\d[\d,]*(?= )", self.questions)
        return int(number[0].replace(",", "")) if number else None

    @property
    def own_corpora(self) -> list[str]:
        """Names of our corpora that hold the same texts; empty if there are none."""
        return list(_tables()["corpora"].get(self.corpus, ()))

    @property
    def source(self) -> str:
        """Paper, table and arXiv number, for display."""
        return f"{self.paper}, {self.table} (arXiv {_tables()['papers'][self.paper]['arxiv']})"


@cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """Return all figures of the papers."""
    tables, figures = _tables(), list[PublishedFigure]()
    for paper, table, model, setting, system, method, values in tables["results"]:
        for dataset, by_metric in values.items():
            for metric, value in by_metric.items():
                metrics = tuple(tables["metrics"].get(metric, {}).get(dataset, ()))
                share = value if metric == LATENCY else value / _PER_CENT
                conditions = _conditions(tables["papers"][paper], dataset, closed_book=method in _CLOSED_BOOK)
                figures.append(PublishedFigure(paper, table, model, setting, system, method, dataset, metric, metrics, share, *conditions))
    return tuple(figures)


def comparable_results(dataset: str, metrics: Collection[str], methods: Iterable[str] | None) -> list[tuple[PublishedFigure, str]]:
    """Return the papers' figures that are comparable with ours, each with the name of our closest metric.

    A figure that several tables of a paper repeat is returned once.

    Args:
        dataset: the papers' name of the dataset.
        metrics: names of our available metrics.
        methods: names of our methods; only their figures are returned. None: all figures, including those of ablations and other systems.
    """
    allowed, seen = None if methods is None else set(methods), set[tuple[Any, ...]]()
    results = list[tuple[PublishedFigure, str]]()
    for figure in published_figures():
        metric = next((name for name in figure.own_metrics if name in metrics), None)
        if figure.dataset != dataset or metric is None or not (allowed is None or figure.method in allowed):
            continue
        key = (figure.paper, figure.model, figure.method or figure.system, figure.metric, figure.value)
        if key not in seen:
            seen.add(key)
            results.append((figure, metric))
    return results


def detect_dataset(file: str) -> str | None:
    """Return the papers' dataset that a file's name mentions, such as NQ for "nq-test.qa.csv"; None if it mentions none."""
    name = PurePath(file).name.lower()
    words, letters = set(re.split("[^a-z0-9]+", name)), re.sub("[^a-z0-9]", "", name)
    for dataset, names in _tables()["files"].items():
        if any(known in words or (len(known) >= _MIN_LETTERS and known in letters) for known in names):
            return str(dataset)
    return None


def _conditions(paper: dict[str, Any], dataset: str, *, closed_book: bool) -> tuple[str, str, str, int]:
    """Return retriever, corpus, questions and k of a paper's experiment on a dataset."""
    questions = paper["questions"].get(dataset, _NOT_STATED)
    if closed_book:
        return "", "", questions, 0
    retriever, corpus = (
        value if isinstance(value, str) else value.get(dataset, _NOT_STATED) for value in (paper["retriever"], paper["corpus"])
    )
    return retriever, corpus, questions, paper["k"]


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return tables

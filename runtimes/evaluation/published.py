"""The figures in the tables of the four papers, from ``published.json``, to quote beside ours.

They come from other language models and partly other retrievers, questions and evaluators. Each row of ``results`` is
``[paper, table, language model, setting, system, our method of that kind or null, {dataset: {metric: value}}]``; ``metrics`` lists our
metrics for each of the paper's, the closest first; ``files`` the words in a file's name that identify a dataset.
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
_DISTINCT = 5  # letters; a shorter dataset name must be a separate word
_NOT_SAID = "not stated"
_CLOSED_BOOK = ("direct", "cot", "least_to_most", "genread")


class Published(NamedTuple):
    """A figure of a paper.

    Attributes:
        paper, table: its source.
        model: the language model; "not stated" if the table names only a method.
        setting: further settings in the table.
        system: as named in the table.
        method: our corresponding method; None: there is none, for instance for an ablation.
        dataset, metric: as in the paper.
        ours: names of our corresponding metrics, the closest first; empty: none on this dataset.
        value: a share from 0 to 1, or seconds.
        retriever, corpus, questions: of the experiment.
        k: passages per search.
    """

    paper: str
    table: str
    model: str
    setting: str
    system: str
    method: str | None
    dataset: str
    metric: str
    ours: tuple[str, ...]
    value: float
    retriever: str
    corpus: str
    questions: str
    k: int

    @property
    def source(self) -> str:
        """Paper and table, for display."""
        return f"{self.paper}, {self.table} (arXiv {_file()['papers'][self.paper]['arxiv']})"


@cache
def published() -> tuple[Published, ...]:
    """Return all figures of the papers."""
    told, found = _file(), list[Published]()
    for paper, table, model, setting, system, method, values in told["results"]:
        for dataset, figures in values.items():
            for metric, value in figures.items():
                ours = tuple(told["metrics"].get(metric, {}).get(dataset, ()))
                share = value if metric == "latency_s" else value / _PER_CENT
                where = _conditions(told["papers"][paper], dataset, closed_book=method in _CLOSED_BOOK)
                found.append(Published(paper, table, model, setting, system, method, dataset, metric, ours, share, *where))
    return tuple(found)


def comparable_results(dataset: str, metrics: Collection[str], methods: Iterable[str] | None) -> list[tuple[Published, str]]:
    """Return the papers' figures comparable with ours, each with the name of our metric; a figure repeated in two tables is returned once.

    Args:
        dataset: as named in the papers.
        metrics: our metrics; of several for one of a paper, the closest is taken.
        methods: methods to quote; None: everything, including ablations and systems without a method of ours.
    """
    wanted, seen = None if methods is None else set(methods), set[tuple[Any, ...]]()
    found = list[tuple[Published, str]]()
    for one in published():
        metric = next((name for name in one.ours if name in metrics), None)
        if one.dataset != dataset or metric is None or not (wanted is None or one.method in wanted):
            continue
        key = (one.paper, one.model, one.method or one.system, one.metric, one.value)
        if key not in seen:
            seen.add(key)
            found.append((one, metric))
    return found


def dataset_of(file: str) -> str | None:
    """Return the papers' dataset of a file, by the words of its name; None: no word matches.

    For instance "hotpot_dev_fullwiki_v1.json" or "nq-test.qa.csv".
    """
    name = PurePath(file).name.lower()
    words, letters = set(re.split("[^a-z0-9]+", name)), re.sub("[^a-z0-9]", "", name)
    for dataset, names in _file()["files"].items():
        if any(known in words or (len(known) >= _DISTINCT and known in letters) for known in names):
            return str(dataset)
    return None


def _conditions(paper: dict[str, Any], dataset: str, *, closed_book: bool) -> tuple[str, str, str, int]:
    """Return retriever, corpus, questions and k."""
    questions = paper["questions"].get(dataset, _NOT_SAID)
    if closed_book:
        return "", "", questions, 0
    retriever, corpus = (
        given if isinstance(given, str) else given.get(dataset, _NOT_SAID) for given in (paper["retriever"], paper["corpus"])
    )
    return retriever, corpus, questions, paper["k"]


@cache
def _file() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    return told

"""The figures of the four papers, as their tables have them: ``published.json``, to be quoted beside ours.

They are the papers' own, from other language models and partly other retrievers, questions and evaluators. Each row of ``results`` is
``[paper, table, language model, setting, system, our method of that kind or null, {dataset: {metric: value}}]``; ``metrics`` says which of
our metrics the paper's is, the closest first; ``files`` by which words in a file's name a dataset is known.
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
_DISTINCT = 5  # letters: a shorter name of a dataset must be a word of its own
_NOT_SAID = "not stated"
_CLOSED_BOOK = ("direct", "cot", "least_to_most", "genread")


class Published(NamedTuple):
    """A figure of a paper.

    Attributes:
        paper, table: where it stands.
        model: the language model; "not stated" where the table names only a method.
        setting: what the table says besides.
        system: as the table names it.
        method: ours of that kind; None: none is, an ablation for instance.
        dataset, metric: as the paper has them.
        ours: names of our metrics that measure it, the closest first; none: not on this dataset.
        value: a share from 0 to 1, or seconds.
        retriever, corpus, questions: what it was measured with.
        k: passages a search.
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
    """Return the papers' figures that can stand beside ours, each with the name of our metric; a figure that two tables repeat comes once.

    Args:
        dataset: as the papers name it.
        metrics: that we have; of several that measure a paper's, the closest is taken.
        methods: whose kind is quoted; None: everything, ablations and systems that we do not have included.
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
    """Return which of the papers' datasets a file holds, by the words of its name; None: none of them is among these.

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

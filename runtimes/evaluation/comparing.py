"""Runs side by side: differences on the questions that they share, and the papers' figures beside theirs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.by_models.measured import model_of
from wikidx.runtimes.evaluation.published import Published, comparable_results
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval, Paired

from . import normalizing

SECONDS = "seconds"
_PAPERS_MODELS = {"NLI": "google/t5_xxl_true_nli_mixture", "judge": "gpt-4"}  # ALCE's, used by Self-Reasoning; RetroRAG's


class Difference(NamedTuple):
    """Two runs on a data set by one metric: the first minus the second, on the questions of both.

    Attributes:
        dataset, metric, first, second: names.
        paired: the difference.
        n_alone: number of questions that only one of the runs has, including different questions with the same id.
    """

    dataset: str
    metric: str
    first: str
    second: str
    paired: Paired
    n_alone: int


class OwnResult(NamedTuple):
    """A run's counterpart of a paper's figure, and other differences of the experiments: "setting: the paper's / ours"."""

    run: str
    value: Interval
    differs: str


class PublishedResult(NamedTuple):
    """A paper's figure, our corresponding metric, and our figures of every run of its method."""

    published: Published
    metric: str
    ours: tuple[OwnResult, ...]


def datasets(runs: Sequence[ScoredRun]) -> dict[str, list[ScoredRun]]:
    """Return the runs on each data set, in order."""
    found = dict[str, list[ScoredRun]]()
    for run in runs:
        found.setdefault(run.dataset, []).append(run)
    return found


def metrics(runs: Sequence[ScoredRun]) -> list[str]:
    """Return the names of all metrics of the runs."""
    return list(dict.fromkeys(name for run in runs for name in run.values))


def differences(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, every_pair: bool = False) -> Iterator[Difference]:
    """Yield for each data set and metric the differences of runs from the first; with ``every_pair``, of all pairs."""
    for dataset, some in datasets(runs).items():
        pairs = [(later, earlier) for earlier, later in itertools.combinations(some, 2) if every_pair or earlier is some[0]]
        for metric, (first, second) in itertools.product(metrics(some), pairs):
            if metric in first.values and metric in second.values:
                one, other = _joined(first, second, metric)
                n_alone = len(first.questions) + len(second.questions) - 2 * len(one)
                yield Difference(dataset, metric, first.name, second.name, bootstrap.paired(one, other), n_alone)


def places_of(run: ScoredRun) -> dict[tuple[str, str], int]:
    """Return the position of each question by id and normalised text; ids alone, such as 1, 2, 3, also occur in other sets."""
    return {(question.id, normalizing.squad(question.text)): place for place, question in enumerate(run.questions)}


def _joined(first: ScoredRun, second: ScoredRun, metric: str) -> tuple[FloatArray, FloatArray]:
    """Return the values of two runs on their common questions."""
    places = places_of(second)
    both = [(place, places[key]) for key, place in places_of(first).items() if key in places]
    ours, theirs = np.array(both, np.intp).reshape(-1, 2).T
    return first.values[metric][ours], second.values[metric][theirs]


def quoted(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, everything: bool = False) -> list[PublishedResult]:
    """Return the papers' figures on the data sets of runs, each with ours from every run of its method.

    Args:
        runs: our runs.
        bootstrap: of our intervals.
        everything: also quote systems and ablations without a run; implied for a data set whose runs record no method.
    """
    found = list[PublishedResult]()
    for dataset, some in datasets(runs).items():
        methods: Collection[str] | None = {run.facts.method for run in some if run.facts.method}
        measured = {*metrics(some), SECONDS}
        for published, metric in comparable_results(dataset, measured, None if everything or not methods else methods):
            alike = [run for run in some if published.method is not None and run.facts.method == published.method]
            ours = [
                OwnResult(run.name, mean, _differing(published, run, metric))
                for run in alike
                if (mean := bootstrap.interval(run.values_of(metric))).n
            ]
            found.append(PublishedResult(published, metric, tuple(ours)))
    return found


def _differing(published: Published, run: ScoredRun, metric: str) -> str:
    """Return other differences of a paper's experiment, the paper's value first."""
    facts, n = run.facts, f"{len(run.questions):,} questions"
    pairs = [
        ("LLM", published.model, facts.model),
        ("questions", published.questions, n),
    ]
    if published.retriever:
        pairs += [("retriever", published.retriever, facts.retriever), ("corpus", published.corpus, facts.corpus)]
    if published.k and facts.k:
        pairs.append(("passages a search", str(published.k), facts.k))
    judges = (model_of(about) for about in run.measured.values() if metric in about["values"])
    pairs += [(what, _PAPERS_MODELS[what], name) for what, name in filter(None, judges)]
    return "; ".join(
        f"{what}: {theirs or 'none'} / {ours or 'unknown'}" for what, theirs, ours in pairs if (theirs or ours) and theirs != ours
    )

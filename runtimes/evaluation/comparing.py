"""Runs side by side: differences on the questions that they share, and the papers' figures beside theirs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.by_models.measured import model_of
from wikidx.runtimes.evaluation.published import Published, beside
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.scoring import Scored
from wikidx.runtimes.evaluation.uncertainty import FloatArray, Interval, Paired, interval, paired

from . import normalizing

SECONDS = "seconds"
_PAPERS_MODELS = {"NLI": "google/t5_xxl_true_nli_mixture", "judge": "gpt-4"}  # ALCE's, which Self-Reasoning took; RetroRAG's


class Run(NamedTuple):
    """A scored run: on which data set, and what it was made with."""

    scored: Scored
    dataset: str
    facts: RunFacts

    @property
    def name(self) -> str:
        """Its name."""
        return self.scored.name


class Difference(NamedTuple):
    """Two runs on a data set by one metric: the first minus the second, on the questions of both.

    Attributes:
        dataset, metric, first, second: which.
        paired: the difference.
        n_alone: questions that only one of the runs has.
        n_renamed: ids under which the runs have different questions, both among ``n_alone``.
    """

    dataset: str
    metric: str
    first: str
    second: str
    paired: Paired
    n_alone: int
    n_renamed: int = 0


class Ours(NamedTuple):
    """A run's figure of the kind of a paper's, and what else was other there: "what: the paper's / ours"."""

    run: str
    value: Interval
    differs: str


class Quoted(NamedTuple):
    """A paper's figure, our metric that measures it, and ours by every run of its method."""

    published: Published
    metric: str
    ours: tuple[Ours, ...]


def datasets(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs on each data set, in order."""
    found = dict[str, list[Run]]()
    for run in runs:
        found.setdefault(run.dataset, []).append(run)
    return found


def metrics(runs: Sequence[Run]) -> list[str]:
    """Return the names of all metrics that any of the runs has."""
    return list(dict.fromkeys(name for run in runs for name in run.scored.values))


def differences(runs: Sequence[Run], *, every_pair: bool = False, level: float = 0.95, seed: int = 0) -> Iterator[Difference]:
    """Yield for each data set and metric how the runs differ from its first run.

    Args:
        runs: in the order in which they are shown.
        every_pair: compare each run with each one before it instead.
        level: of the intervals.
        seed: of the resamples.
    """
    for dataset, some in datasets(runs).items():
        pairs = [(later, earlier) for earlier, later in itertools.combinations(some, 2) if every_pair or earlier is some[0]]
        for metric, (first, second) in itertools.product(metrics(some), pairs):
            if metric in first.scored.values and metric in second.scored.values:
                one, other = _joined(first.scored, second.scored, metric)
                found = paired(one, other, level=level, seed=seed)
                n_alone = len(first.scored.questions) + len(second.scored.questions) - 2 * len(one)
                ids, others = ({question.id for question in run.scored.questions} for run in (first, second))
                n_renamed = len(ids & others) - len(one)
                yield Difference(dataset, metric, first.name, second.name, found, n_alone, n_renamed)


def places_of(scored: Scored) -> dict[tuple[str, str], int]:
    """Return the place of each question by its id and its text, normalised: ids alone, such as 1, 2, 3, are those of other sets too."""
    return {(question.id, normalizing.squad(question.text)): place for place, question in enumerate(scored.questions)}


def _joined(first: Scored, second: Scored, metric: str) -> tuple[FloatArray, FloatArray]:
    """Return the values of two runs on the questions of both."""
    places = places_of(second)
    both = [(place, places[key]) for key, place in places_of(first).items() if key in places]
    ours, theirs = np.array(both, np.intp).reshape(-1, 2).T
    return first.values[metric][ours], second.values[metric][theirs]


def quoted(runs: Sequence[Run], *, everything: bool = False, level: float = 0.95, seed: int = 0) -> list[Quoted]:
    """Return the papers' figures on the data sets of runs, each with ours by every run of its method.

    Args:
        runs: ours.
        everything: also quote systems and ablations that none of the runs is of; a data set whose runs tell no method gets everything.
        level: of the intervals of ours.
        seed: of their resamples.
    """
    found = list[Quoted]()
    for dataset, some in datasets(runs).items():
        methods: Collection[str] | None = {run.facts.method for run in some if run.facts.method}
        measured = {*metrics(some), SECONDS}
        for published, metric in beside(dataset, measured, None if everything or not methods else methods):
            alike = [run for run in some if published.method is not None and run.facts.method == published.method]
            ours = [
                Ours(run.name, mean, _differing(published, run, metric)) for run in alike if (mean := _mean(run, metric, level, seed)).n
            ]
            found.append(Quoted(published, metric, tuple(ours)))
    return found


def _mean(run: Run, metric: str, level: float, seed: int) -> Interval:
    values = run.scored.costs[metric] if metric == SECONDS else run.scored.values.get(metric, np.empty(0))
    return interval(values, level=level, seed=seed)


def _differing(published: Published, run: Run, metric: str) -> str:
    """Return what else was other in a paper's experiment, the paper's first."""
    facts, n = run.facts, f"{len(run.scored.questions):,} questions"
    pairs = [
        ("LLM", published.model, facts.model),
        ("questions", published.questions, n),
    ]
    if published.retriever:
        pairs += [("retriever", published.retriever, facts.retriever), ("corpus", published.corpus, facts.corpus)]
    if published.k and facts.k:
        pairs.append(("passages a search", str(published.k), facts.k))
    judges = (model_of(about) for about in run.scored.measured.values() if metric in about["values"])
    pairs += [(what, _PAPERS_MODELS[what], name) for what, name in filter(None, judges)]
    return "; ".join(
        f"{what}: {theirs or 'none'} / {ours or 'unknown'}" for what, theirs, ours in pairs if (theirs or ours) and theirs != ours
    )

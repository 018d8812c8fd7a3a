"""Comparison of runs with one another on their common questions, and with the papers' figures."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.by_models.row_metrics import model_of
from wikidx.runtimes.evaluation.published import PublishedFigure, comparable_results
from wikidx.runtimes.evaluation.scoring import ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval, PairedTest
from wikidx.runtimes.methods.skr import BETTER, SAME, WORSE
from wikidx.runtimes.questions import Question

from . import normalizing

SERVICE = "service"
_PAPERS_MODELS = {"NLI": "google/t5_xxl_true_nli_mixture", "judge": "gpt-4"}  # Self-Reasoning's NLI model, RetroRAG's judge


class Difference(NamedTuple):
    """The difference between two runs in one metric, first run minus second, on their common questions of a data set.

    Attributes:
        dataset, metric, first, second: names of the data set, the metric and the two runs.
        test: the paired test.
        n_unpaired: number of questions that only one of the runs has; different questions with the same id are among them.
    """

    dataset: str
    metric: str
    first: str
    second: str
    test: PairedTest
    n_unpaired: int


class OwnResult(NamedTuple):
    """A run's counterpart of a paper's figure.

    Attributes:
        run: the run's name.
        value: the run's mean with its interval.
        differences: the settings that differ, such as "LLM: GPT-4 / qwen"; the paper's setting comes first.
        obstacles: those of the differences that forbid a comparison: in the questions, in the corpus, and questions that the run has not
            reached; empty: comparable.
    """

    run: str
    value: Interval
    differences: str
    obstacles: str


class PublishedResult(NamedTuple):
    """A paper's figure, the name of our corresponding metric, and the results of our runs of the same method."""

    published: PublishedFigure
    metric: str
    own_results: tuple[OwnResult, ...]


def group_by_dataset(runs: Sequence[ScoredRun]) -> dict[str, list[ScoredRun]]:
    """Return data set -> runs, in order of appearance."""
    groups = dict[str, list[ScoredRun]]()
    for run in runs:
        groups.setdefault(run.dataset, []).append(run)
    return groups


def metric_names(runs: Sequence[ScoredRun]) -> list[str]:
    """Return the distinct names of the runs' metrics, in order of appearance."""
    return list(dict.fromkeys(name for run in runs for name in run.values))


def compare_pairs(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, every_pair: bool = False) -> Iterator[Difference]:
    """Yield, for each data set and metric, each run's difference from the first run; with ``every_pair``, from every earlier run."""
    for dataset, group in group_by_dataset(runs).items():
        pairs = [(later, earlier) for earlier, later in itertools.combinations(group, 2) if every_pair or earlier is group[0]]
        for metric, (first, second) in itertools.product(metric_names(group), pairs):
            if metric in first.values and metric in second.values:
                first_values, second_values = _common_values(first, second, metric)
                n_unpaired = len(first.questions) + len(second.questions) - 2 * len(first_values)
                yield Difference(dataset, metric, first.name, second.name, bootstrap.paired_test(first_values, second_values), n_unpaired)


def question_positions(run: ScoredRun) -> dict[tuple[str, str], int]:
    """Return (id, normalised text) -> position of the question; an id alone, such as 1, 2 or 3, may occur in several data sets."""
    return {(question.id, normalizing.squad(question.text)): position for position, question in enumerate(run.questions)}


def _common_values(first: ScoredRun, second: ScoredRun, metric: str) -> tuple[FloatArray, FloatArray]:
    """Return the values of two runs on their common questions, in the same order."""
    first_indices, second_indices = np.array(_common_positions(first, second), np.intp).reshape(-1, 2).T
    return first.values[metric][first_indices], second.values[metric][second_indices]


def _common_positions(first: ScoredRun, second: ScoredRun) -> list[tuple[int, int]]:
    """Return the positions of each common question in the two runs."""
    positions = question_positions(second)
    return [(position, positions[key]) for key, position in question_positions(first).items() if key in positions]


class Example(NamedTuple):
    """A question that a run answers better ("win") or worse ("loss") than another run.

    Attributes:
        question: the question.
        answers: the answer of the first and of the second run; None: no answer.
    """

    outcome: str
    question: Question
    answers: tuple[str | None, str | None]


def find_examples(first: ScoredRun, second: ScoredRun, metric: str, limit: int) -> list[Example]:
    """Return up to ``limit`` wins of the first run over the second by a metric, and as many losses; the largest differences first."""
    pairs = _common_positions(first, second)
    differences = [first.values[metric][at] - second.values[metric][other] for at, other in pairs]
    found = list[Example]()
    for outcome, sign in (("win", 1), ("loss", -1)):
        order = sorted(
            (number for number, value in enumerate(differences) if value * sign > 0), key=lambda number: -differences[number] * sign
        )
        for at, other in (pairs[number] for number in order[:limit]):
            found.append(Example(outcome, first.questions[at], (first.rows[at].answer, second.rows[other].answer)))
    return found


def self_knowledge(without: ScoredRun, with_passages: ScoredRun, metric: str) -> list[dict[str, Any]]:
    """Return whether passages have helped with each question that both runs answered, by a metric, as SKR's authors write it."""
    records = list[dict[str, Any]]()
    for at, other in _common_positions(without, with_passages):
        question, answers = without.questions[at], (without.rows[at].answer, with_passages.rows[other].answer)
        gain = with_passages.values[metric][other] - without.values[metric][at]
        if None not in answers and not np.isnan(gain):
            told = {"cot": answers[0], "cot-ir": answers[1], "status": BETTER if gain > 0 else WORSE if gain < 0 else SAME}
            records.append({"Question": question.text, "Gold answer": list(question.golden_answers), **told})
    return records


def group_seeds(runs: Sequence[ScoredRun]) -> list[list[ScoredRun]]:
    """Return the groups of at least two runs whose settings, as ``run.json`` records them, differ in the seed alone."""
    groups = dict[str, list[ScoredRun]]()
    for run in runs:
        settings = dict(run.predictions.run_json.get("settings") or {})
        if settings.pop("seed", None) is not None:
            groups.setdefault(json.dumps([run.dataset, settings], sort_keys=True), []).append(run)
    return [group for group in groups.values() if len({run.facts.seed for run in group}) > 1]


def match_published(runs: Sequence[ScoredRun], bootstrap: Bootstrap, *, include_all: bool = False) -> list[PublishedResult]:
    """Return the papers' figures on the runs' data sets, each with the results of our runs of the same method.

    Args:
        runs: our runs.
        bootstrap: parameters of our intervals.
        include_all: also return figures of systems and ablations without a run. For a data set whose runs record no method, all figures are
            returned in any case.
    """
    results = list[PublishedResult]()
    for dataset, group in group_by_dataset(runs).items():
        methods: Collection[str] | None = {run.facts.method for run in group if run.facts.method}
        available = {*metric_names(group), SERVICE}
        for published, metric in comparable_results(dataset, available, None if include_all or not methods else methods):
            matching = [run for run in group if published.method is not None and run.facts.method == published.method]
            own_results = [
                OwnResult(run.name, mean, describe_differences(published, run, metric), describe_obstacles(published, run))
                for run in matching
                if (mean := bootstrap.interval(run.values_of(metric))).n
            ]
            results.append(PublishedResult(published, metric, tuple(own_results)))
    return results


def describe_obstacles(published: PublishedFigure, run: ScoredRun) -> str:
    """Return why a paper's figure and a run's are not comparable, as ``OwnResult.obstacles``."""
    n, corpus = len(run.questions) + run.source.n_missing, run.facts.corpus
    obstacles = []
    if published.n_questions != n:
        obstacles.append(f"questions: {published.questions} / {n:,}")
    if published.corpus and corpus not in published.own_corpora:
        obstacles.append(f"corpus: {published.corpus} / {corpus or 'unknown'}")
    n_reached = sum(row.answer is not None or row.error is not None for row in run.rows)
    if n_reached < n:
        obstacles.append(f"reached: all / {n_reached:,}")
    return "; ".join(obstacles)


def describe_differences(published: PublishedFigure, run: ScoredRun, metric: str) -> str:
    """Return the settings in which a paper's experiment and a run differ, as ``OwnResult.differences``."""
    facts, n = run.facts, f"{len(run.questions):,} question{'s' if len(run.questions) != 1 else ''}"
    pairs = [
        ("LLM", published.model, facts.model),
        ("questions", published.questions, n),
    ]
    if published.retriever:
        pairs += [("retriever", published.retriever, facts.retriever), ("corpus", published.corpus, facts.corpus)]
    if published.k and facts.k:
        pairs.append(("passages a search", str(published.k), facts.k))
    models = (model_of(metadata) for metadata in run.row_metrics.values() if metric in metadata["values"])
    pairs += [(label, _PAPERS_MODELS[label], name) for label, name in filter(None, models)]
    return "; ".join(
        f"{label}: {theirs or 'none'} / {ours or 'unknown'}" for label, theirs, ours in pairs if theirs.lower() != ours.lower()
    )

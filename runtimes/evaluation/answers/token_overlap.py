"""Precision, recall and F1 of an answer's tokens against a gold's tokens, by the formula that all evaluators share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from wikidx.runtimes.evaluation.answers.metric import Metric, official
from wikidx.runtimes.questions import Question


class Overlap(NamedTuple):
    """F1, precision and recall of two bags of tokens, each from 0 to 1."""

    f1: float
    precision: float
    recall: float


NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


def overlap(predicted: Sequence[str], gold: Sequence[str]) -> Overlap:
    """Return the overlap of an answer's tokens with a gold's tokens, counted with multiplicity.

    If there is no common token, all values are 0, even for two empty sequences.
    """
    common = (Counter(predicted) & Counter(gold)).total()
    if common == 0:
        return NO_OVERLAP
    precision, recall = common / len(predicted), common / len(gold)
    return Overlap((2 * precision * recall) / (precision + recall), precision, recall)


def best_exact_match(normalise: Callable[[str], str]) -> Callable[[str, Sequence[str]], float | None]:
    """Return a function (answer, golds) -> 1.0 if the answer equals a gold after normalisation, else 0.0; None without golds."""
    return lambda answer, golds: max((float(normalise(answer) == normalise(gold)) for gold in golds), default=None)


def best_f1(normalise: Callable[[str], str]) -> Callable[[str, Sequence[str]], float | None]:
    """Return a function (answer, golds) -> the largest F1 of normalised answer and gold; None without golds."""
    return lambda answer, golds: max((overlap(normalise(answer).split(), normalise(gold).split()).f1 for gold in golds), default=None)


def overlap_metrics(name: str, measure: Callable[[str, Question], Overlap | None]) -> tuple[Metric, ...]:
    """Return three metrics: F1, precision and recall of an overlap.

    Args:
        name: prefix of the metrics' names.
        measure: (answer, question) -> overlap; None if undefined for the question.
    """

    def metric(position: int, figure: str) -> Metric:
        def score(answer: str, question: Question) -> float | None:
            result = measure(answer, question)
            return None if result is None else result[position]

        return official(f"{name}_{figure}", score)

    return tuple(metric(position, figure) for position, figure in enumerate(Overlap._fields))

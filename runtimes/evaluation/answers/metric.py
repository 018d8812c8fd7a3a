"""The type of an answer metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wikidx.runtimes.questions import Question


class Metric(NamedTuple):
    """A metric of one answer to one question; a run's value is the mean over its questions.

    Attributes:
        name: the metric's name, which begins with its origin, such as ``hotpotqa_f1``.
        origin: the evaluator, and its rule for empty answers and unusual golds.
        score: (answer, question) -> a number from 0 to 1; None if the evaluator defines no value for the question, which is then counted
            and left out of the mean.
        missing: the evaluator's value for a question without an answer; None: the question is left out of the mean.
    """

    name: str
    origin: str
    score: Callable[[str, Question], float | None]
    missing: float | None = 0.0


def references(question: Question) -> Sequence[str]:
    """Return the reference texts of a long answer: the golden answers, or else the long answers."""
    return question.golden_answers or tuple(question.gold.get("long_answers", ()))

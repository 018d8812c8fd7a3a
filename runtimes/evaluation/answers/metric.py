"""The type of an answer metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wikidx.runtimes.questions import Question


class Metric(NamedTuple):
    """A figure of one answer to one question; a run's figure is the mean.

    Attributes:
        name: origin first, ``hotpotqa_f1``.
        origin: whose evaluator it is, and its rule for empty answers and odd golds.
        score: (answer, question) to a number from 0 to 1; None where the evaluator has no figure for the question, which is then counted
            and left out of the mean.
        missing: what a question without an answer counts as; None: it is left out of the mean. The evaluator's own rule.
    """

    name: str
    origin: str
    score: Callable[[str, Question], float | None]
    missing: float | None = 0.0


def references(question: Question) -> Sequence[str]:
    """Return the texts that a long answer is compared with: the golden answers, or else the reference texts."""
    return question.golden_answers or tuple(question.gold.get("long_answers", ()))

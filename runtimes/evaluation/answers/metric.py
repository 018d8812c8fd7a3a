"""The type of an answer metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from wikidx.corpora.reading.compression import read_toml
from wikidx.runtimes.questions import Question


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one answer to one question; a run's value is the mean over its questions.

    Attributes:
        name: evaluator and figure, such as ``hotpotqa_f1``.
        origin: the evaluator, and its rules for empty answers and unusual golds.
        score: (answer, question) -> a number from 0 to 1; None if undefined for the question. Reports count undefined values, and leave
            them out of the mean.
        missing: value if the run has no answer to the question; None: undefined.
    """

    plugin_kind: ClassVar[str] = "metric"

    name: str
    origin: str
    score: Callable[[str, Question], float | None]
    missing: float | None = 0.0


def official(name: str, score: Callable[[str, Question], float | None], missing: float | None = 0.0) -> Metric:
    """Return a metric of idx, whose origin ``origins.toml`` tells."""
    return Metric(name, _origins()[name], score, missing)


@cache
def _origins() -> dict[str, str]:
    return read_toml(Path(__file__).with_name("origins.toml"))


def references(question: Question) -> Sequence[str]:
    """Return the question's golden answers; if there are none, its ``long_answers``."""
    return question.golden_answers or tuple(question.gold.get("long_answers", ()))

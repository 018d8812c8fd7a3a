"""Metrics computed over all predictions at once: citations, which need the passages and an NLI model, and LLM judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question


class Measured(NamedTuple):
    """Values of questions, and what was odd or is worth knowing about them all.

    Attributes:
        values: metric -> float64 (questions,), from 0 to 1; NaN: not defined for that question.
        counts: what -> how many.
    """

    values: dict[str, FloatArray]
    counts: dict[str, int]


class RowMetric(Protocol):
    """A metric that reads predictions as a whole."""

    def about(self) -> dict[str, Any]:
        """Return what decides the values besides predictions and questions, as JSON has it; complete after measuring."""
        ...

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> Measured:
        """Return the values of predictions, each of the question in the same place."""
        ...


def told(about: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield a word on each thing that a row metric says of itself, nested ones too: "nli model small"."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from told(value, f"{above}{name} ")
        elif value is not None:
            yield f"{above}{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def model_of(about: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what kind of model a row metric's figures are by, and its name; None: it says none."""
    if "nli" in about:
        return "NLI", str(about["nli"]["model"])
    return ("judge", str(about["llm"])) if "llm" in about else None


def origin_of(about: Mapping[str, Any]) -> str | None:
    """Return whose evaluator a row metric's figure is, and by which model; None: it does not say."""
    origin, model = about.get("origin"), model_of(about)
    return origin if origin is None or model is None else f"{origin.removesuffix('.')}; {' '.join(model)}"

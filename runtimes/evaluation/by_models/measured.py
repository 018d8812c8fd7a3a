"""Metrics computed over all predictions at once: citations, which need the passages and an NLI model, and LLM judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question


class Measured(NamedTuple):
    """Values of questions, with counts over all of them.

    Attributes:
        values: metric -> float64 (questions,), from 0 to 1; NaN: undefined for that question.
        counts: description -> number.
    """

    values: dict[str, FloatArray]
    counts: dict[str, int]


class RowMetric(Protocol):
    """A metric computed over all predictions together."""

    def about(self) -> dict[str, Any]:
        """Return the settings that decide the values besides predictions and questions, as JSON values; complete after measuring."""
        ...

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> Measured:
        """Return the values of predictions; prediction i answers question i."""
        ...


def told(about: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield a text for each setting of a row metric, including nested ones: "nli model small"."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from told(value, f"{above}{name} ")
        elif value is not None:
            yield f"{above}{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def model_of(about: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return kind and name of a row metric's model; None: it names none."""
    if "nli" in about:
        return "NLI", str(about["nli"]["model"])
    return ("judge", str(about["llm"])) if "llm" in about else None


def origin_of(about: Mapping[str, Any]) -> str | None:
    """Return evaluator and model of a row metric; None: it names none."""
    origin, model = about.get("origin"), model_of(about)
    return origin if origin is None or model is None else f"{origin.removesuffix('.')}; {' '.join(model)}"

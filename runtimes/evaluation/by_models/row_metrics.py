"""Metrics computed over all predictions together: citation metrics, from passages and an NLI model, and LLM judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question


class RowValues(NamedTuple):
    """Values per question, and counts over all questions.

    Attributes:
        values: metric -> float64 (questions,), from 0 to 1; NaN: undefined for that question.
        counts: description -> count.
    """

    values: dict[str, FloatArray]
    counts: dict[str, int]


class RowMetric(Protocol):
    """A metric computed over all predictions together."""

    def metadata(self) -> dict[str, Any]:
        """Return the settings that affect the values, as JSON values; complete only after ``measure``."""
        ...

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> RowValues:
        """Return the values of predictions; prediction i answers question i."""
        ...


def flatten(metadata: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a text for each setting of a row metric, such as "nli model small" for a nested setting."""
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name} ")
        elif value is not None:
            yield f"{prefix}{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def model_of(metadata: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return kind and name of a row metric's model; None if the metadata name no model."""
    if "nli" in metadata:
        return "NLI", str(metadata["nli"]["model"])
    return ("judge", str(metadata["llm"])) if "llm" in metadata else None


def origin_of(metadata: Mapping[str, Any]) -> str | None:
    """Return a row metric's evaluator, with the model if there is one; None if the metadata name no evaluator."""
    origin, model = metadata.get("origin"), model_of(metadata)
    return origin if origin is None or model is None else f"{origin.removesuffix('.')}; {' '.join(model)}"

"""The type of metrics that a model computes over all predictions of a run together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question


class RowValues(NamedTuple):
    """Values per question, and counts over all questions.

    Attributes:
        values: metric -> float64 (questions,), from 0 to 1; NaN: undefined for the question.
        counts: description -> count, such as "sentences" -> 120.
    """

    values: dict[str, FloatArray]
    counts: dict[str, int]


class RowMetric(Protocol):
    """A metric, or several, computed over all predictions of a run together."""

    def metadata(self) -> dict[str, Any]:
        """Return the settings that affect the values, as JSON values; some settings are known only after ``measure``."""
        ...

    def measure(self, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> RowValues:
        """Return the values of predictions; ``rows[i]`` answers ``questions[i]``."""
        ...


def flatten(metadata: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a text for each setting of a row metric; for {"nli": {"model": "small"}}, "nli model small"."""
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name} ")
        elif value is not None:
            yield f"{prefix}{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def model_of(metadata: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the kind ("NLI" or "judge") and the name of a row metric's model; None if the metadata name no model."""
    if "nli" in metadata:
        return "NLI", str(metadata["nli"]["model"])
    return ("judge", str(metadata["llm"])) if "llm" in metadata else None


def origin_of(metadata: Mapping[str, Any]) -> str | None:
    """Return a row metric's origin, followed by the model; None if the metadata have no origin."""
    origin, model = metadata.get("origin"), model_of(metadata)
    return origin if origin is None or model is None else f"{origin.removesuffix('.')}; {' '.join(model)}"

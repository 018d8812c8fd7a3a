"""Figures at several sizes -> their growth, their estimates at other sizes, and figures that grow too fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.report import Figure

TARGETS = (21_015_324, 35_600_000)  # wiki2018, wiki2020
LINEAR = 1.05  # larger exponents grow faster than the corpus
HELD = 0.1  # bytes per further byte of text; above, memory grows with the corpus

_UNITS = {"s": ("s", 1.0), "ms": ("ms", 1e3), "MB": ("MB", 1e-6)}


@dataclass(frozen=True, slots=True)
class Series:
    """One figure of one step at several sizes, ascending.

    Attributes:
        step: the step's name.
        figure: the figure's name.
        unit: "s" or "ms", measured in seconds, or "MB", measured in bytes.
        sizes: passages.
        values: in seconds or bytes.
        bytes_per_text_byte: bytes per further byte of text, for a process's own memory; otherwise None.
    """

    step: str
    figure: str
    unit: str
    sizes: Sequence[int]
    values: Sequence[float]
    bytes_per_text_byte: float | None = None

    @property
    def exponent(self) -> float:
        """Exponent of the figure's growth with the number of passages: slope of the line through the logarithms of all points."""
        return _exponent(self.sizes, self.values)

    @property
    def last_exponent(self) -> float:
        """The same for the two largest sizes, where fixed costs of a process weigh least."""
        return _exponent(self.sizes[-2:], self.values[-2:])

    def estimate(self, n: int) -> float:
        """Return the estimate at another size, from the two largest: on the power law or the straight line, whichever gives more.

        The line is right for a process with fixed costs; decreasing figures are assumed to stay constant.
        """
        (below, above), last = self.sizes[-2:], self.values[-1]
        line = last + (last - self.values[-2]) / (above - below) * (n - above)
        law: float = last * (n / above) ** max(0.0, self.last_exponent)
        return max(law, line)

    def remark(self) -> str:
        """Return a remark on excessive growth, empty if there is none."""
        remarks = ["worse than linear"] if max(self.exponent, self.last_exponent) > LINEAR else []
        remarks += ["holds the corpus"] if self.bytes_per_text_byte is not None and self.bytes_per_text_byte > HELD else []
        return ", ".join(remarks)

    def row(self, sizes: Sequence[int]) -> dict[str, Figure]:
        """Return the row of a table with columns for these sizes; a step may lack some."""
        name, factor = _UNITS[self.unit]
        return {
            "step": self.step,
            "figure": f"{self.figure} {name}",
            **{f"{n:,}": "" for n in sizes},
            **{f"{n:,}": factor * value for n, value in zip(self.sizes, self.values, strict=True)},
            "exponent": round(self.exponent, 2),
            "(largest two)": round(self.last_exponent, 2),
            "of text %": "" if self.bytes_per_text_byte is None else 100 * self.bytes_per_text_byte,
            **{f"{n:,}": factor * self.estimate(n) for n in TARGETS},
            "remark": self.remark(),
        }


def _exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    if len(sizes) < 2 or min(values) <= 0:
        return 0.0
    return float(np.polyfit([math.log(n) for n in sizes], [math.log(value) for value in values], 1)[0])


def series(measured: Mapping[int, Mapping[str, Mapping[str, float]]]) -> Iterator[Series]:
    """Yield the measurements, by size, step and key, as one series for each figure of each step with at least two sizes."""
    steps = {step: figures for n in sorted(measured) for step, figures in measured[n].items()}
    for step, figures in steps.items():
        sizes = [n for n in sorted(measured) if step in measured[n]]
        for key in figures if len(sizes) > 1 else ():
            found = _describe_figure(step, key)
            if found is not None:
                values = [measured[n][step][key] for n in sizes]
                yield Series(step, *found, sizes, values, _memory_growth(measured, sizes, values) if key == "own" else None)


def _describe_figure(step: str, key: str) -> tuple[str, str] | None:
    """Return the name of a figure, and its unit; None if it does not describe the step."""
    kind = step.split()[0]
    if kind in ("passages", "make") and key not in ("s", "kept", "text"):
        return None  # not the project's work
    if key in ("own", "resident"):
        return ("own memory" if key == "own" else "resident memory"), "MB"
    if key in ("disk", "kept", "text"):
        left = {"disk": "most disk", "kept": "disk", "text": "text"}[key]
        return (left, "MB") if kind in ("build", "make") or key == "text" else None
    if key in ("s", "cpu_s"):
        return None if kind in ("search", "serve") else ({"s": "time", "cpu_s": "processors"}[key], "s")
    if kind == "search":
        word, size, *_ = key.split("_")
        batch = f"a question of {size}" + (", processors" if word == "processors" else "")
        return {"single_s": "one question, p50", "p95_s": "p95"}.get(key, batch), "ms"
    if key in ("health_s", "ready_s"):
        return f"until /{key.removesuffix('_s')}", "s"
    clients = key.split("_")[1]
    return (f"a request of {clients} clients", "ms") if clients != "1" else None


def _memory_growth(
    measured: Mapping[int, Mapping[str, Mapping[str, float]]], sizes: Sequence[int], values: Sequence[float]
) -> float | None:
    """Return the bytes of a figure per further byte of text between the two largest sizes: below, buffers are still filling."""
    texts = [measured[n].get("passages", {}).get("text", 0.0) for n in sizes[-2:]]
    return (values[-1] - values[-2]) / (texts[1] - texts[0]) if texts[1] > texts[0] > 0 else None


def required_machine(found: Sequence[Series], embedding: Mapping[str, float]) -> list[dict[str, Figure]]:
    """Return the resources of a machine for each target; ``embedding`` are the seconds per passage of each encoder."""

    def total(n: int, figure: str, *kinds: str) -> float:
        return sum(growth.estimate(n) for growth in found if growth.figure == figure and growth.step.split()[0] in kinds)

    rows: list[dict[str, Figure]] = []
    for n in TARGETS:
        own = max((one for one in found if one.figure == "own memory"), key=lambda one: one.estimate(n))
        rows.append(
            {
                "passages": n,
                "disk GB": total(n, "disk", "build", "make") / 1e9,
                "most disk while building GB": max(one.estimate(n) for one in found if one.figure == "most disk") / 1e9,
                "own memory GB, most": own.estimate(n) / 1e9,
                "(of)": own.step,
                "hours to build": total(n, "time", "build") / 3600,
                "processor hours": total(n, "processors", "build") / 3600,
                "minutes to check": total(n, "time", "check") / 60,
                **{f"hours to embed by {name}": n * seconds / 3600 for name, seconds in embedding.items()},
            }
        )
    return rows

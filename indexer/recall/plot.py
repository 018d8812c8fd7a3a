"""Plot of recall against speed, for choosing an index and its parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import MissingExtraError

from .measuring import BATCH, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "osD^vP"
_DEPTHS = (10, 100)  # recall depths, one panel each
_TICKS = (0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1)
_NEAREST_TO_1 = 0.002  # the log scale of 1 - recall ends at about this value


class Curve(NamedTuple):
    """The line of an index in the plot.

    Attributes:
        parameter: the search parameter that varies along the line; None for a single point.
        default: the parameter's default.
        points: the measured points.
    """

    parameter: str | None
    default: int | None
    points: Sequence[Point]


def draw(path: Path, title: str, curves: Mapping[str, Curve], exact_queries_per_s: float) -> None:
    """Plot recall against queries per second as a PNG file, with a line for each index and a panel for each depth.

    Args:
        path: output file.
        title: title above the plot.
        curves: lines by index name.
        exact_queries_per_s: speed of exact search, the reference.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: a disk error.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("the plot of recall", "eval") from error
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    for axes, depth in zip(figure.subplots(1, len(_DEPTHS), sharex=True, sharey=True), _DEPTHS, strict=True):
        _draw_panel(axes, depth, curves, exact_queries_per_s)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def _draw_panel(axes: Axes, depth: int, curves: Mapping[str, Curve], exact_queries_per_s: float) -> None:
    axes.axvline(exact_queries_per_s, color="0.35", linestyle=":", label="exact search")
    for number, (name, curve) in enumerate(curves.items()):
        _draw_curve(axes, name, curve, _MARKERS[number % len(_MARKERS)], depth)
    axes.set_xscale("log")
    axes.set_yscale("function", functions=(_height, _recall))
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.set_ylim(top=1.0006)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"queries per second, in batches of {BATCH}")
    axes.set_ylabel("recall against exact search")
    axes.set_title(f"recall@{depth}")
    axes.grid(visible=True, which="both", alpha=0.25)


def _height(recall: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the height of a recall in the plot, on a log scale of 1 - recall: indexes differ mostly at high recall."""
    return -np.log10(np.maximum(1 - recall, -_NEAREST_TO_1 / 2) + _NEAREST_TO_1)


def _recall(height: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 + _NEAREST_TO_1 - 10.0**-height


def _draw_curve(axes: Axes, name: str, curve: Curve, marker: str, depth: int) -> None:
    """Draw the line of an index. Each point has the parameter's value as its label; the point of the default is filled."""
    points = [
        (point.queries_per_s, point.recall[depth], point.setting.get(curve.parameter or ""))
        for point in curve.points
        if depth in point.recall
    ]
    label = name + (f": {curve.parameter}, {curve.default} unless set" if curve.parameter else "")
    speeds, recalls = [speed for speed, _, _ in points], [recall for _, recall, _ in points]
    (line,) = axes.plot(speeds, recalls, marker=marker, markerfacecolor="white", markersize=6, linewidth=1.2, label=label)
    for speed, recall, value in points:
        if value == curve.default:
            axes.plot([speed], [recall], marker=marker, markersize=8, color=line.get_color())
        if value is not None:
            axes.annotate(str(value), (speed, recall), textcoords="offset points", xytext=(5, 4), fontsize=7, color=line.get_color())

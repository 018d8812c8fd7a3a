"""Plots of results: recall curves, bar charts of metrics, and accuracy against cost.

A legend lists its lines in descending order of their values at the largest k. Colour-blind readers can distinguish the colours (Okabe and
Ito's), and the shapes of markers differ as well. Figures are drawn without a display.
"""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wikidx.base.errors import MissingExtraError
from wikidx.runtimes.evaluation.reports.drawings import Mark, Point
from wikidx.runtimes.evaluation.reports.tables import text_line
from wikidx.runtimes.evaluation.uncertainty import Interval

try:
    import matplotlib
    from adjustText import adjust_text
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text
    from matplotlib.ticker import LogLocator, MaxNLocator
except ImportError as error:
    raise MissingExtraError("plots", "eval", "need") from error

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHAPES = "osD^vPX*"  # 8 shapes and 7 colours: up to 56 lines differ in shape or colour
_PAPER_SHAPES = ("D", "^", "s", "o", "v", "P")
_GREY = "0.35"
STYLE: dict[Any, Any] = {  # rcParams
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "text.parse_math": False,  # dollar signs are literal
    "svg.hashsalt": "idx",  # identical figures produce identical files
}
_ROW = 0.34  # inches per bar
_LONGEST = 36  # maximum number of characters of a title, or of a line in a wide legend
_LONGEST_NAME = 24  # of the name of a bar or a point
_WIDTH = 4.6  # inches; two plots fit on a page, one on a phone
_MUCH = 8  # ratio of the largest cost to the smallest above which the cost axis is logarithmic


def curves(title: str, curves: Mapping[str, Mapping[int, Interval]], measure: str = "recall") -> Figure:
    """Draw one line per name: the share of questions against the depth k. A band shows the intervals.

    Args:
        title: the title above the plot.
        curves: name -> k -> share of questions, from 0 to 1.
        measure: the share's name in the label of the y-axis, such as "recall@k, %".
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.8), layout="constrained")
        axes = figure.subplots()
        depths = sorted({k for curve in curves.values() for k in curve})
        for number, (name, curve) in enumerate(curves.items()):
            ks = sorted(curve)
            means, lows, highs = ([100 * end for end in ends] for ends in zip(*(curve[k][:3] for k in ks), strict=True))
            color = COLORS[number % len(COLORS)]
            axes.fill_between(ks, lows, highs, color=color, alpha=0.13, linewidth=0)
            axes.plot(
                ks, means, color=color, marker=_SHAPES[number % len(_SHAPES)], markersize=5, linewidth=1.6, label=_short(name, _LONGEST)
            )
        axes.set_xscale("log")
        axes.set_xticks(depths, [str(k) for k in depths])
        axes.minorticks_off()
        axes.set_xlabel("k, passages")
        axes.set_ylabel(f"{measure}@k, %")
        axes.set_title(text_line(title))
        _scale_zeros(axes)
        axes.grid(visible=True, axis="y", alpha=0.25)
        by_end = sorted(zip(curves.values(), axes.get_lines(), strict=True), key=lambda item: -item[0][max(item[0])].mean)
        axes.legend(handles=[line for _, line in by_end], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, labelcolor="linecolor")
        return figure


def bars(title: str, panel: Mapping[str, Interval | None], marks: Sequence[Mark] = ()) -> Figure:
    """Draw one bar per run or group. Error bars show intervals, and hollow marks show the papers' figures.

    Args:
        title: the title above the plot.
        panel: name -> share, from 0 to 1; None: no value.
        marks: the papers' figures.
    """
    with matplotlib.rc_context(STYLE):
        names, papers = list(panel), sorted({mark.paper for mark in marks})
        hollow: dict[str, Any] = {"linestyle": "", "color": _GREY, "markerfacecolor": "white"}
        looks = {paper: {**hollow, "marker": shape} for paper, shape in zip(papers, itertools.cycle(_PAPER_SHAPES), strict=False)}
        figure = Figure(figsize=(_WIDTH, _ROW * len(names) + 0.95 + (0.45 if papers else 0)), layout="constrained")
        axes = figure.subplots()
        _draw_bars(axes, names, panel)
        for mark in marks:
            axes.plot(100 * mark.value, names.index(mark.name), clip_on=False, **looks[mark.paper])
        low, high = axes.get_xlim()
        axes.set_xlim(min(0.0, low), min(100.0, max(high, 1.0)) if axes.dataLim.x1 > 0 else 100.0)
        axes.set_title(_short(title, _LONGEST))
        if papers:
            handles = [Line2D([], [], **looks[paper]) for paper in papers]
            legend = "the papers' own figures, by other models:"
            figure.legend(handles, papers, loc="outside lower center", ncols=len(papers), frameon=False, title=legend, fontsize=9)
        return figure


def tradeoff(points: Mapping[str, Point], cost: str, accuracy: str) -> Figure:
    """Draw accuracy against cost: one point per run. Error bars show both intervals.

    Args:
        points: run -> point.
        cost: label of the cost axis.
        accuracy: the metric's name.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
        axes = figure.subplots()
        for number, point in enumerate(points.values()):
            _draw_point(axes, point, COLORS[number % len(COLORS)], _SHAPES[number % len(_SHAPES)])
        axes.set_xlabel(cost)
        axes.set_ylabel(f"{accuracy}, %")
        axes.grid(visible=True, alpha=0.25)
        axes.margins(0.25, 0.15)
        _scale_zeros(axes)
        _set_cost_scale(axes, points.values())
        figure.draw_without_rendering()  # lays out the axes before the labels are placed
        _label_points(axes, points)
        return figure


def svg(figure: Figure) -> str:
    """Return a figure as the ``data:`` URL of an SVG image. Text is drawn as outlines, which need no fonts."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _short(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a foreign name on one line; a long one is shortened to its beginning and end."""
    name = text_line(name)
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-longest // 2 + 1 :]}"


def _draw_bars(axes: Axes, names: Sequence[str], panel: Mapping[str, Interval | None]) -> None:
    for row, name in enumerate(names):
        interval = panel.get(name)
        if interval is None or not interval.n:
            axes.text(1.02, row, "–", transform=axes.get_yaxis_transform(), va="center", fontsize=9)
            continue
        mean, low, high = (100 * number for number in interval[:3])
        axes.barh(row, mean, height=0.62, color=COLORS[row % len(COLORS)], alpha=0.85)
        axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], color="black", linewidth=1, capsize=3)
        axes.text(1.02, row, f"{mean:.1f}", transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.set_yticks(range(len(names)), list(map(_short, names)))
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("%")
    axes.grid(visible=True, axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def _draw_point(axes: Axes, point: Point, color: str, shape: str) -> None:
    (cost, *across), (height, *up) = point.cost[:3], [100 * number for number in point.accuracy[:3]]
    axes.errorbar(
        cost, height, xerr=_ends(cost, across), yerr=_ends(height, up), color=color, marker=shape, markersize=7, elinewidth=1, capsize=2
    )


def _ends(mean: float, ends: Sequence[float]) -> list[list[float]]:
    return [[mean - ends[0]], [ends[1] - mean]]


def _scale_zeros(axes: Axes) -> None:
    """Let the y-axis end at 100 % if all values are 0; otherwise it would show hundredths on both sides of 0."""
    if axes.dataLim.y1 <= 0:
        axes.set_ylim(-2, 100)


def _set_cost_scale(axes: Axes, points: Collection[Point]) -> None:
    """Make the cost axis logarithmic if the costs differ greatly, otherwise begin it at 0."""
    costs = [point.cost.mean for point in points]
    if costs and min(costs) > 0 and max(costs) / min(costs) > _MUCH:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter("{x:,g}")


def _label_points(axes: Axes, points: Mapping[str, Point]) -> None:
    """Label each point with its name, and move the names away from each other, from points and from interval ends."""
    texts, drawn = list[Text](), list[tuple[float, float]]()
    for number, (name, (cost, accuracy)) in enumerate(points.items()):
        (x, *across), (y, *up) = cost[:3], [100 * share for share in accuracy[:3]]
        texts.append(axes.text(x, y, _short(name), color=COLORS[number % len(COLORS)]))
        drawn += [(x, y), *((end, y) for end in across), *((x, end) for end in up)]
    # A limit on iterations instead of time makes identical figures produce identical files.
    adjust_text(texts, *zip(*drawn, strict=True), ax=axes, expand=(1.1, 1.3), ensure_inside_axes=True, iter_lim=300)
    for text in texts:
        text.set_in_layout(False)

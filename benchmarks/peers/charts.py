"""Figures of ``benchmarks.peers`` -> the charts of the README, as PNG files.

This project is blue. Rates start at 0, except on logarithmic axes, which are labelled. The background is white, on dark pages too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.peers.groups import GROUPS
from wikidx.runtimes.evaluation.reports.plots import COLORS, STYLE

OURS = COLORS[0]
PEERS = (COLORS[1], COLORS[2], COLORS[3])
_BAR = "0.5"  # a peer's
_TEXT = "0.25"
_DPI = 200  # twice GitHub's resolution
_COLORS_IN_FILE = 64

Part = Mapping[str, Any]
Line = tuple[Sequence[float], Sequence[float]]


def draw(figures: Mapping[str, Part], folder: Path) -> list[Path]:
    """Draw the charts of the measured parts; return the files."""
    drawers = {"bm25": bm25_chart, "vectors": vectors_chart, "server": server_chart}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part, drawer in drawers.items():
        if part in figures:
            with matplotlib.rc_context(STYLE):
                _save(drawer(figures[part]), folder / f"{part}.png")
            written.append(folder / f"{part}.png")
    return written


def bm25_chart(part: Part) -> Figure:
    """Draw questions per second of each engine, a panel for each k, with R@20 next to the bars."""
    rows = part["tables"][GROUPS["bm25"].title]
    ks = sorted({row["k"] for row in rows})
    figure = _figure("BM25: questions per second and recall", 2.9)
    for axes, k in zip(figure.subplots(1, len(ks), squeeze=False, sharex=True, sharey=True)[0], ks, strict=True):
        of_k = [row for row in rows if row["k"] == k]
        for place, row in enumerate(of_k):
            color = OURS if place == 0 else _BAR
            axes.barh(place, row["questions/s"], height=0.62, color=color, alpha=0.45, linewidth=0)
            axes.barh(place, row["(median)"], height=0.62, color=color, linewidth=0)
            label = f" {_round(row['questions/s'])}/s\n R@20 {row['R@20 %']:.1f} %"
            axes.text(row["questions/s"], place, label, va="center", fontsize=8.5, linespacing=1.15, color=_TEXT)
        axes.set_yticks(range(len(of_k)), [row["engine"] for row in of_k])
        axes.set_ylim(len(of_k) - 0.5, -0.5)
        axes.set_xlim(0, 1.36 * max(row["questions/s"] for row in rows))
        axes.set_title(f"k = {k}", fontsize=10)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_xlabel("questions/s: median and, paler, best round")
    return figure


def vectors_chart(part: Part) -> Figure:
    """Draw questions per second of exact search against the batch size."""
    tables = part["tables"]
    title = next(title for title in tables if "by batch" in title)
    rows, found = tables[title], tables[GROUPS["vectors"].title]
    figure = _figure("Exact search over MiniLM's vectors: questions per second", 3.5)
    axes = figure.subplots()
    batches = [row["batch"] for row in rows]
    lines = {name: (batches, [row[name] for row in rows]) for name in rows[0] if name != "batch"}
    _draw_lines(axes, lines, batches)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    _label_ends(axes, lines, "  ", 0.075)
    recalls = _recalls([row["R@20 %"] for row in found], "all")
    axes.set_xlabel(f"query vectors per batch (k = {title.rpartition(' ')[2]}; {recalls})")
    axes.set_ylabel("questions/s, logarithmic")
    return figure


def server_chart(part: Part) -> Figure:
    """Draw requests per second against the number of clients, a panel for each retriever."""
    rows, servers = part["tables"]["Single questions through /retrieve"], part["tables"]["The servers"]
    retrievers = list(dict.fromkeys(row["retriever"] for row in rows))
    figure = _figure("Requests per second, one question per request", 3.3)
    for axes, retriever in zip(figure.subplots(1, len(retrievers), squeeze=False)[0], retrievers, strict=True):
        of_retriever = [row for row in rows if row["retriever"] == retriever]
        clients = [row["clients"] for row in of_retriever]
        names = {"idx serve": "idx requests/s", "Search-R1's way": "Search-R1's way"}
        lines = {name: (clients, [row[column] for row in of_retriever]) for name, column in names.items()}
        _draw_lines(axes, lines, clients)
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        _label_ends(axes, lines, "\n", 0.15)
        recalls = [row["R@20 %"] for row in servers if row["server"].endswith(retriever)]
        axes.set_title(f"{retriever}, {_recalls(recalls, 'both')}", fontsize=10)
        axes.set_xlabel("clients")
    figure.axes[0].set_ylabel("requests/s")
    return figure


def _figure(title: str, height: float) -> Figure:
    figure = Figure(figsize=(8, height), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _draw_lines(axes: Axes, lines: Mapping[str, Line], ticks: Sequence[int]) -> None:
    """Draw lines, this project's first, over an axis with logarithmic ticks."""
    for (xs, ys), color in zip(lines.values(), (OURS, *PEERS), strict=False):
        axes.plot(
            xs, ys, color=color, marker="o", markersize=4.5, linewidth=2.2 if color == OURS else 1.6, zorder=3 if color == OURS else 2
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(visible=True, axis="y", alpha=0.25)


def _label_ends(axes: Axes, lines: Mapping[str, Line], between: str, min_gap: float) -> None:
    """Write the lines' names and last values right of the axes, at their ends or at least ``min_gap`` of the axis apart."""
    ends = [(xs[-1], ys[-1]) for xs, ys in lines.values()]
    to_share = (axes.transScale + axes.transLimits).transform
    heights = spread([float(to_share(end)[1]) for end in ends], min_gap)
    for name, end, height, color in zip(lines, ends, heights, (OURS, *PEERS), strict=False):
        weight = "bold" if color == OURS else "normal"
        text = f"{name}{between}{_round(end[1])}/s"
        where: dict[str, Any] = {"xytext": (1.03, height), "textcoords": "axes fraction", "va": "center", "annotation_clip": False}
        axes.annotate(text, end, color=color, fontsize=9, fontweight=weight, **where)


def _recalls(values: Sequence[float], which: str) -> str:
    """Return recall as text, one figure if all agree."""
    low, high = (f"{end(values):.1f}" for end in (min, max))
    return f"{which}: R@20 {low} %" if low == high else f"R@20 {low} to {high} %"


def _round(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG with a small palette, to keep the file small."""
    from PIL import Image

    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=_DPI)
    with Image.open(pixels) as image:
        image.convert("RGB").quantize(_COLORS_IN_FILE).save(path, optimize=True)


def spread(heights: Sequence[float], min_gap: float) -> list[float]:
    """Return heights for labels at these heights: at least ``min_gap`` apart, in the same order, and as close as that allows.

    Labels that are too close are stacked around their mean; stacks that meet are merged.
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    piles = list[list[int]]()
    for place in order:
        piles.append([place])
        while len(piles) > 1 and _bottom(piles[-1], heights, min_gap) - _top(piles[-2], heights, min_gap) < min_gap:
            piles[-2:] = [piles[-2] + piles[-1]]
    placed = dict[int, float]()
    for pile in piles:
        bottom = _bottom(pile, heights, min_gap)
        placed |= {place: bottom + step * min_gap for step, place in enumerate(pile)}
    return [placed[place] for place in range(len(heights))]


def _bottom(pile: Sequence[int], heights: Sequence[float], min_gap: float) -> float:
    return sum(heights[place] for place in pile) / len(pile) - min_gap * (len(pile) - 1) / 2


def _top(pile: Sequence[int], heights: Sequence[float], min_gap: float) -> float:
    return _bottom(pile, heights, min_gap) + min_gap * (len(pile) - 1)

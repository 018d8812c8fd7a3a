"""Charts of the documentation from figures of ``benchmarks.engines``, ``benchmarks.vectors`` and ``benchmarks.serve``.

    python -m benchmarks.engines --corpora dpr_union --questions dpr_union --engines bm25 bm25s bm25s-strings pyserini --json bm25.json
    python -m benchmarks.vectors --batch 1 8 32 128 512 --k 100 --engines exact faiss-best faiss semantic-search --json vectors.json
    python -m benchmarks.serve --parts requests --json server.json
    python -m benchmarks.charts bm25.json vectors.json server.json      # PNG files of these names in benchmarks/charts

This project is drawn first, in blue. The background is white, on dark pages too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.report import parser
from wikidx.runtimes.evaluation.reports.plots import COLORS, STYLE

_FOLDER = Path(__file__).parent / "charts"
_DPI = 200  # twice GitHub's resolution

Rows = Sequence[Mapping[str, Any]]
Lines = Mapping[str, Sequence[tuple[float, float]]]


def draw(name: str, tables: Mapping[str, Rows]) -> Figure:
    """Draw a table of searches, or of requests."""
    requests = next((rows for title, rows in tables.items() if "/retrieve" in title), None)
    searches = next((rows for title, rows in tables.items() if title.startswith("Searches")), ())
    if requests is not None:
        panels = {retriever: _requests(requests, retriever) for retriever in dict.fromkeys(row["retriever"] for row in requests)}
        return _figure("Requests per second, one question per request", "clients", "requests/s", panels)
    if name == "vectors":
        panels = {f"k = {k}": _by_batch(searches, k) for k in dict.fromkeys(row["k"] for row in searches)}
        return _figure("Exact search: questions per second", "query vectors per batch", "questions/s", panels, is_log=True)
    whole = [row for row in searches if row["batch"] == "all" and row["threads"] == max(one["threads"] for one in searches)]
    panels = {"all in one batch": {engine: _points(whole, engine, "k") for engine in dict.fromkeys(row["engine"] for row in whole)}}
    return _figure("BM25: questions per second", "k", "questions/s, median", panels, is_log=True)


def _points(rows: Rows, engine: str, x: str) -> list[tuple[float, float]]:
    return [(row[x], row["median"]) for row in rows if row["engine"] == engine]


def _by_batch(rows: Rows, k: int) -> Lines:
    most = max(row["threads"] for row in rows)
    of_k = [row for row in rows if row["k"] == k and row["threads"] == most and row["batch"] != "all"]
    return {engine: _points(of_k, engine, "batch") for engine in dict.fromkeys(row["engine"] for row in of_k)}


def _requests(rows: Rows, retriever: str) -> Lines:
    names = {"idx serve": "idx requests/s", "Search-R1's way": "Search-R1's way"}
    return {name: [(row["clients"], row[column]) for row in rows if row["retriever"] == retriever] for name, column in names.items()}


def _figure(title: str, x: str, y: str, panels: Mapping[str, Lines], *, is_log: bool = False) -> Figure:
    """Draw lines, this project's first, a panel for each title, over an axis with logarithmic ticks."""
    figure = Figure(figsize=(8, 3.4), layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    for axes, (panel, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for (label, points), color in zip(lines.items(), COLORS, strict=False):
            axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4.5, label=label)
        axes.set_xscale("log", base=2)
        ticks = sorted({point[0] for points in lines.values() for point in points})
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.set_yscale("log" if is_log else "linear")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.set(title=panel, xlabel=x, ylabel=y)
        axes.set_ylim(bottom=None if is_log else 0)
        axes.legend(fontsize=8.5)
    return figure


def main() -> int:
    """Run the command line."""
    made = parser("charts", __doc__)
    made.add_argument("files", nargs="+", type=Path, help="figures that a benchmark has written with --json")
    made.add_argument("--out", type=Path, default=_FOLDER, help="folder of the charts")
    options = made.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for file in options.files:
        with matplotlib.rc_context(STYLE):
            draw(file.stem, json.loads(file.read_bytes())["tables"]).savefig(options.out / f"{file.stem}.png", dpi=_DPI)
        print(options.out / f"{file.stem}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())

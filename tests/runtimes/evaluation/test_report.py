"""Reports and their plots: contents, self-containedness, and labels that do not overlap."""

from __future__ import annotations

import base64
import itertools
import warnings
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.transforms import Bbox

from wikidx.runtimes.evaluation.reports.drawings import Drawing, Mark, Point
from wikidx.runtimes.evaluation.reports.plots import bars, curves, tradeoff
from wikidx.runtimes.evaluation.reports.report import Report, Section, to_html, to_markdown
from wikidx.runtimes.evaluation.reports.tables import Column, Table, percent
from wikidx.runtimes.evaluation.uncertainty import Interval

NASTY = '<script src="http://x.example/a.js">alert(1)</script> & "q" | *b*'


def share(mean: float, half: float = 0.05) -> Interval:
    return Interval(mean, mean - half, mean + half, 100)


def test_no_two_of_many_lines_look_alike() -> None:
    figure = curves("many", {f"run {number}": {1: share(number / 60), 5: share(number / 60)} for number in range(56)})
    looks = [(line.get_color(), line.get_marker()) for line in figure.axes[0].get_lines()]
    assert len(set(looks)) == len(looks) == 56
    assert len({color for color, _ in looks[:7]}) == len({shape for _, shape in looks[:7]}) == 7


REPORT = Report(
    NASTY,
    [("model", NASTY)],
    [
        Section("Scores", [Table((Column("run"), Column(NASTY, percent)), [(NASTY, share(0.4))], "Scores", [NASTY])]),
        Section(
            "Plots",
            plots=[
                Drawing(NASTY, "bars", (NASTY, {NASTY: share(0.4)})),
                Drawing("b", "curves", ("c", {"d": {1: share(0.5)}})),
                Drawing("e", "tradeoff", ({"f": Point(Interval(9, 8, 10, 9), share(0.5))}, "g", "h")),
            ],
        ),
        Section("Nothing"),
    ],
)


class Seen(HTMLParser):
    """The contents of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page_loads_nothing_and_shows_texts_as_they_are() -> None:
    seen = Seen(to_html(REPORT))
    assert "script" not in seen.tags
    assert "link" not in seen.tags
    assert seen.tags.count("img") == 3
    assert all(address.startswith("data:image/svg+xml;base64,") for address in seen.addresses)
    assert seen.texts.count(NASTY) == 6  # title, heading, fact, column, cell, note
    assert "40.0 [35.0, 45.0]" in seen.texts
    assert "Nothing" not in seen.texts
    assert "@import" not in to_html(REPORT)
    assert "url(" not in to_html(REPORT)


def test_images_refer_to_nothing_outside_and_are_the_same_each_time() -> None:
    page = Seen(to_html(REPORT))
    assert page.addresses == Seen(to_html(REPORT)).addresses
    for address in page.addresses:
        image = ET.fromstring(base64.b64decode(address.partition(",")[2]))
        references = [value for element in image.iter() for name, value in element.attrib.items() if name.endswith("href")]
        assert references
        assert all(reference.startswith("#") for reference in references)


def test_empty_sections_and_repeated_titles_are_left_out() -> None:
    assert "Nothing" not in to_markdown(REPORT)
    assert to_markdown(REPORT).startswith("# \\<script")
    bare = to_markdown(Report("T", [], [Section("S", [Table((Column("a"),), [(1,)], "S")])]))
    assert bare == "# T\n\n## S\n\n| a |\n|---:|\n| 1 |"


def names(n: int) -> list[str]:
    return [f"method {at}, with a long name"[: 8 + 3 * at].rstrip() for at in range(n)]


def test_every_run_and_mark_is_drawn() -> None:
    panel = {name: share(0.2 + at / 10) for at, name in enumerate(names(4))} | {names(5)[4]: Interval(np.nan, np.nan, np.nan, 0)}
    figure = bars("HotpotQA", panel, [Mark(names(5)[1], "RetroRAG", 0.412), Mark(names(5)[2], "RA-ISF", 0.99)])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == names(5)
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([20, 30, 40, 50])  # type: ignore[attr-defined]
    assert [text.get_text() for text in axes.texts] == ["20.0", "30.0", "40.0", "50.0", "–"]
    marks = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [np.ravel(mark.get_xdata()).item() for mark in marks] == pytest.approx([41.2, 99])
    assert [np.ravel(mark.get_ydata()).item() for mark in marks] == [1, 2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["RA-ISF", "RetroRAG"]


def test_a_plot_names_what_no_font_shows_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    names = ("a\x1b[31m\x07\x00", "東京", "🦊", "שלום")
    panel = {name: share(0.5) for name in names}
    assert bars("\x1b", panel).axes[0].get_yticklabels()[0].get_text() == "a\\x1b[31m\\x07\\x00"
    plots = [
        Drawing("a", "bars", ("\x1b", panel)),
        Drawing("b", "curves", ("\x1b", {name: {1: share(0.5)} for name in names})),
        Drawing("c", "tradeoff", ({name: Point(Interval(9, 8, 10, 9), share(0.5)) for name in names}, "x", "em")),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert to_html(Report("T", [], [Section("S", [], plots)])).count("<img ") == 3
    assert capfd.readouterr().err == ""


def test_values_that_are_all_zero_have_an_axis_of_per_cent() -> None:
    none = share(0, 0)
    drawn = [bars("em", {"a": none, "b": none}), curves("R", {"a": {1: none, 5: none}})]
    drawn.append(tradeoff({"a": Point(Interval(9, 8, 10, 9), none)}, cost="tokens", accuracy="em"))
    ends = [figure.axes[0].get_xlim()[1] if at == 0 else figure.axes[0].get_ylim()[1] for at, figure in enumerate(drawn)]
    assert ends == [100, 100, 100]
    assert bars("em", {"a": share(0.003, 0.003)}).axes[0].get_xlim() == (0, 1)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_labels_of_points_do_not_cover_one_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = {
        name: Point(Interval(x, x * 0.95, x * 1.05, 9), share(y))
        for name, x, y in zip(names(6), rng.uniform(1, 60, 6), rng.random(6), strict=True)
    }
    figure = tradeoff(points, cost="tokens", accuracy="em")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes, frame = [text.get_window_extent() for text in axes.texts], axes.bbox.padded(1)
    assert all(frame.containsx(x) and frame.containsy(y) for box in boxes for x, y in box.corners())
    assert len(boxes) == 6
    assert all(Bbox.intersection(one, other) is None for one, other in itertools.combinations(boxes, 2))


def test_curves_are_named_in_the_order_of_their_ends() -> None:
    figure = curves("R@k", {name: {1: share(0.3), 100: share(0.8 + at / 1000)} for at, name in enumerate(names(7))})
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == names(7)[::-1]
    assert [text.get_color() for text in legend.get_texts()] == [line.get_color() for line in figure.axes[0].get_lines()][::-1]
    assert legend.get_window_extent().x0 >= figure.axes[0].get_window_extent().x1
    assert figure.bbox.fully_containsx(legend.get_window_extent().x1)

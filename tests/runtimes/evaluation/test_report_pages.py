"""Reports in headless Chromium: readable on a phone and on a wide screen, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.retrievers.server.browsing import browsing
from tests.runtimes.evaluation.test_comparing import run
from wikidx.runtimes.evaluation.reports.answers_report import answers_report
from wikidx.runtimes.evaluation.reports.comparison_report import compare, comparison_report
from wikidx.runtimes.evaluation.reports.report import to_html
from wikidx.runtimes.evaluation.uncertainty import Bootstrap

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow  # a browser

LOUD = "a method with a rather long name, and a/path/without/any/space/" + "x" * 90


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report on one run, and that on a comparison with the papers' figures."""
    runs, folder = [run("ours", [1, 0, 0, 1]), run(LOUD, [0, 1, 0, 0])], tmp_path_factory.mktemp("pages")
    reports = [answers_report(runs[1], Bootstrap()), comparison_report(compare(runs, Bootstrap()))]
    files = [folder / "one.html", folder / "comparison.html"]
    for file, report in zip(files, reports, strict=True):
        file.write_text(to_html(report), encoding="utf-8")
    return files


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1600, "dark")])
def test_a_report_is_readable(browser: Browser, pages: list[Path], width: int, scheme: Literal["light", "dark"]) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, requests = context.new_page(), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    for file in pages:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper, ink = page.evaluate("(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))")
        assert (brightness(paper) > brightness(ink) + 150) == (scheme == "light")
        assert abs(brightness(paper) - brightness(ink)) > 150
        images = page.locator("img").evaluate_all("all => all.map((i) => [i.naturalWidth, i.getBoundingClientRect().right])")
        assert images
        assert all(size > 0 and right <= width for size, right in images)
        assert page.locator("thead").first.is_visible() == (width == 1600)
        ends = page.locator("td").evaluate_all("all => all.map((cell) => cell.getBoundingClientRect().right)")
        assert width == 1600 or max(ends) <= width
        labels = page.locator("tbody tr:first-child td").evaluate_all("all => all.map((c) => getComputedStyle(c, '::before').content)")
        heads = page.locator("th").all_text_contents()
        assert [label.strip('"') for label in labels] == (heads if width == 390 else ["none"] * len(heads))
    assert all(url.startswith(("file:", "data:")) for url in requests)
    context.close()


def brightness(color: str) -> float:
    """Return the mean of the channels of a color such as ``rgb(22, 24, 23)``, from 0 to 255."""
    return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(","))) / 3

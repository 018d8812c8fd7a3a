"""Helpers for tests of pages: Chromium, a page that is watched, links to searches, contents of the search page, answers of the API."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.retrievers.server.serving import ask

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

SETTING = {"fuse": "rrf", "merge": "max", "dedup": "row", "rerank": "none"}


def chromium(playwright: Playwright) -> str:
    """Return where Chromium is; without one the test skips, except in CI, where it must be there."""
    found = next(filter(None, [*map(shutil.which, (playwright.chromium.executable_path, "chromium", "google-chrome"))]), None)
    if found is None and os.environ.get("CI"):
        pytest.fail("CI must have Chromium: make ci-deps installs it")
    if found is None:
        pytest.skip("needs Chromium: 'make ci-deps' installs it on Debian, 'playwright install chromium' elsewhere")
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'test-full'")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root otherwise
        browser = playwright.chromium.launch(executable_path=chromium(playwright), args=arguments)
        yield browser
        browser.close()


@contextmanager
def watched_page(context: BrowserContext) -> Iterator[Page]:
    """Open a page that requests from one server only and has no errors."""
    page = context.new_page()
    asked, mistakes = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda message: mistakes.append(message.text) if message.type == "error" else None)
    yield page
    assert len({urlsplit(where).netloc for where in asked}) == 1
    assert [mistake for mistake in mistakes if not re.search(r"status of \d+|ERR_INTERNET_DISCONNECTED", mistake)] == []


def link_to(url: str, queries: list[str], setting: dict[str, str], *, corpus: str = "made", k: int = 10) -> str:
    """Return the link to a search, built here in the form of the page's address."""
    pairs = [*(("q", query) for query in queries), ("corpus", corpus), ("k", str(k)), ("depth", "100"), *(SETTING | setting).items()]
    return f"{url}/#{urlencode(pairs)}"


def fill_in(page: Page, values: Mapping[str, str]) -> None:
    """Fill in fields by their labels."""
    for label, value in values.items():
        field = page.get_by_label(label)
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def search(page: Page) -> list[dict[str, Any]]:
    """Press the button and return the passages that are shown."""
    page.get_by_role("button", name="Search").click()
    return shown_passages(page)


def shown_passages(page: Page) -> list[dict[str, Any]]:
    """Return the passages that are shown, when they are there, with the fields of the API."""
    page.locator("#link").wait_for(state="visible")
    shown: list[dict[str, Any]] = page.locator(".passage").evaluate_all(
        """items => items.map((item) => ({
            row: Number(item.dataset.row),
            title: item.querySelector(".title")?.textContent ?? "",
            text: item.querySelector(".text").textContent,
            id: item.querySelector(".id bdi").textContent,
            score: Number(item.querySelector(".facts .score").title),
            provenance: [...item.querySelectorAll(".provenance li")].map((match) => ({
                query: match.querySelector(".query bdi").textContent,
                retriever: match.querySelector(".retriever").textContent,
                rank: Number(match.querySelector(".at").textContent.replace("rank ", "")),
                score: Number(match.querySelector(".score").title),
            })),
        }))"""
    )
    return shown


def api_results(url: str, queries: list[str], setting: dict[str, Any], k: int = 10) -> list[dict[str, Any]]:
    """Return the API's response to the same search."""
    fields = SETTING | setting
    if fields["fuse"] == "weighted-normalized":
        fields = {**fields, "fuse": "weighted", "normalize": True}
    answer = ask(url, "/v1/search", {"groups": [queries], "corpus": "made", "k": k, "depth": 100, **fields})
    assert answer.status == 200, answer
    ranking: list[dict[str, Any]] = answer.json["rankings"][0]
    assert ranking
    return ranking


def approximate(ranking: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a ranking that one of another batch equals: scores of dense retrieval differ in their last bits."""
    return [
        {
            **hit,
            "score": pytest.approx(hit["score"], rel=1e-4),
            "provenance": [{**match, "score": pytest.approx(match["score"], rel=1e-4)} for match in hit["provenance"]],
        }
        for hit in ranking
    ]

"""The search page's links to articles, fields for search parameters, and copied code; the page of the API's documentation."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.retrievers.server.browsing import api_results, approximate, link_to, shown_passages
from tests.retrievers.server.serving import ask, serving, wait_until
from tests.retrievers.server.test_page import ARTICLES, GROUP, browser, context, expect, home_of_two, page, url
from wikidx.corpora.store import PassageStore
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.opening import open_retriever
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

__all__ = ["browser", "context", "home_of_two", "page", "url"]  # fixtures

pytestmark = pytest.mark.slow  # a browser: twenty seconds


@pytest.fixture
def articles_url(home_of_two: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of Wikipedia corpora."""
    monkeypatch.setenv("IDX_HOME", str(home_of_two))
    with serving(Settings(corpora=("wiki2018@3", "wiki2020", "made"), port=0)) as where:
        yield where


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        (
            "wiki2018@3",
            [
                "https://en.wikipedia.org/wiki/AC%2FDC",
                "https://en.wikipedia.org/wiki/Star%20Wars%3A%20Music%3A%20Themes",
                "https://en.wikipedia.org/wiki/Tool%3A%20Live",
            ],
        ),
        (
            "wiki2020",
            [
                "https://en.wikipedia.org/wiki/Special:Search?fulltext=1&search=AC%2FDC",
                "https://en.wikipedia.org/wiki/Special:Search?fulltext=1&search=Star%20Wars%3A%20Music",
                "https://en.wikipedia.org/wiki/Special:Search?fulltext=1&search=Tool%3A%20Live",
            ],
        ),
        ("made", []),
    ],
)
def test_titles_of_wikipedia_link_to_their_articles(context: BrowserContext, articles_url: str, corpus: str, expected: list[str]) -> None:
    page = context.new_page()
    page.goto(link_to(articles_url, ["band whale"], {"retriever": "bm25"}, corpus=corpus))
    shown = sorted(shown_passages(page), key=lambda hit: hit["row"])
    assert sorted(page.locator("a.title").evaluate_all("links => links.map((link) => link.href)")) == expected
    if expected:
        assert [hit["title"] for hit in shown] == [passage.title for passage in ARTICLES]
        assert page.locator("a.title").first.get_attribute("rel") == "noreferrer"


def test_weights_and_search_parameters_are_sent_and_linked(page: Page, url: str) -> None:
    page.goto(link_to(url, GROUP, {"retriever": "bm25"}))
    shown_passages(page)
    for label in ("Weight of bm25", "ef_search", "Rerank depth"):
        expect(page.get_by_label(label)).to_have_count(0)
    page.get_by_label("Retriever").select_option("bm25+minilm-hnsw")
    page.get_by_label("Fuse").select_option("weighted")
    page.get_by_label("Rerank").select_option("primary")
    page.get_by_label("Weight of minilm-hnsw").fill("7.5")
    page.get_by_label("Rerank depth").fill("12")
    page.get_by_label("ef_search").fill("31")
    expect(page.get_by_label("Weight of bm25")).to_have_attribute("placeholder", "1")
    with page.expect_request("**/v1/search") as asked:
        page.get_by_role("button", name="Search").click()
    shown = shown_passages(page)
    sent = asked.value.post_data_json
    assert sent == {
        "groups": [GROUP],
        "corpus": "made",
        "retriever": "bm25+minilm-hnsw",
        "fuse": "weighted",
        "rerank": "primary",
        "weights": {"minilm-hnsw": 7.5},
        "rerank_depth": 12,
        "ef_search": 31,
        "highlight": True,
    }
    assert shown == approximate(
        api_results(url, GROUP, {name: value for name, value in sent.items() if name not in ("groups", "corpus", "highlight")})
    )
    page.reload()
    assert shown_passages(page) == approximate(shown)
    assert page.get_by_label("Weight of minilm-hnsw").input_value() == "7.5"
    assert page.get_by_label("ef_search").input_value() == "31"
    page.get_by_label("ef_search").fill("0")
    page.get_by_role("button", name="Search").click()
    assert page.get_by_label("ef_search").evaluate("field => field.validity.rangeUnderflow")


def test_parameters_of_an_index_are_offered_when_it_is_open(
    context: BrowserContext, home_of_two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDX_HOME", str(home_of_two))
    is_open = threading.Event()

    def open_late(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        assert is_open.wait(30)
        return open_retriever(corpus, name, store, device=device)

    page = context.new_page()
    with serving(Settings(corpora=("made",), retrievers=("minilm-hnsw",), port=0), open_late, until_ready=False) as where:
        wait_until(lambda: ask(where, "/").status == 200)
        page.goto(link_to(where, ["whale"], {"retriever": "minilm-hnsw", "ef_search": "31"}))
        expect(page.get_by_label("ef_search")).to_have_value("31")
        expect(page.locator("#status")).to_contain_text("is being opened")
        is_open.set()
        shown_passages(page)
        page.get_by_label("ef_search").fill("")
        page.get_by_label("Passages").fill("7")
        expect(page.get_by_label("ef_search")).to_have_count(1)


def test_a_rule_that_the_server_cannot_follow_is_not_offered(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_label("Rerank").locator("option")).to_have_text(["none", "by first query"])


@pytest.mark.parametrize(
    "setting", [{"retriever": "bm25"}, {"retriever": "bm25+minilm", "fuse": "weighted-normalized", "rerank": "primary"}]
)
def test_code_is_copied_that_searches_the_same(
    page: Page,
    context: BrowserContext,
    url: str,
    setting: dict[str, str],
) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    queries = ['the river\'s “bank” \\ $HOME `ls` "whale"', "a\tplanet 🜁"]
    page.goto(link_to(url, queries, setting, k=4))
    shown = shown_passages(page)
    texts = {}
    for name in ("curl", "Python"):
        page.get_by_role("button", name=name).click()
        expect(page.locator("#copies")).to_have_text("Copy link Copied Python" if name == "curl" else "Copy link curl Copied")
        texts[name] = page.evaluate("navigator.clipboard.readText()")
        assert page.locator("#code").text_content() == texts[name]
    answer = subprocess.run(["bash", "-c", texts["curl"]], capture_output=True, check=True).stdout
    assert shown == approximate(json.loads(answer)["rankings"][0])
    printed = subprocess.run([sys.executable, "-c", texts["Python"]], capture_output=True, check=True, text=True).stdout
    assert printed.split() == " ".join(f"{hit['score']} {hit['title']}" for hit in json.loads(answer)["rankings"][0]).split()


def test_copied_code_names_the_key_and_does_not_hold_it(context: BrowserContext, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    with serving(Settings(corpora=("made",), port=0, api_key="top secret"), until_ready=True) as where:
        page = context.new_page()
        page.goto(link_to(where, ["whale"], {"retriever": "bm25"}))
        page.get_by_label("This server requires its API key").fill("top secret")
        page.keyboard.press("Enter")
        shown = shown_passages(page)
        monkeypatch.setenv("IDX_API_KEY", "top secret")
        for name, run in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
            page.get_by_role("button", name=name).click()
            code = page.locator("#code").inner_text()
            assert "secret" not in code
            assert str(shown[0]["score"]) in subprocess.run([*run, code], capture_output=True, check=True, text=True).stdout

"""The search page in headless Chromium: it shows the API's response as text, and requests nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.conftest import corpus_of
from tests.retrievers.server.browsing import api_results, approximate, chromium, link_to, shown_passages
from tests.retrievers.server.conftest import some_passages
from tests.retrievers.server.serving import Gated, open_gated, serving
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.analysis import english
from wikidx.indexer.build import build_index, build_vectors
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'test-full'")
expect = sync_api.expect

pytestmark = pytest.mark.slow  # a browser: twenty seconds

ODD = [
    Passage(
        "html",
        "<b>Bold</b> <script>document.ran = 1</script>",
        'a river <img src="x" onerror="document.ran = 2"> &lt;i&gt; <mark>fish</mark>',
    ),
    Passage("rtl", "نهر النيل", "نهر النيل river هو أطول أنهار أفريقيا"),
    Passage("long", "r" * 300, "river " + "x" * 600),
    Passage("untitled", "", "rivers, the river's bank\n\nand a RIVER"),
    Passage("whole", "Length", "the river runs on. " * 200),
]
GROUP = ["a river and a whale", "planets of metal"]
ARTICLES = [
    Passage("1", "AC/DC", "a band from Sydney"),
    Passage("2", "Star Wars: Music: Themes", "a theme for a band"),
    Passage("infobox:2", "Tool: Live", "a band on stage"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root otherwise
        browser = playwright.chromium.launch(executable_path=chromium(playwright), args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def home_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the corpora 'made', under bm25, minilm and minilm-ivf, 'odd', and a few passages under the name of a Wikipedia corpus."""
    home = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        for name, passages in (("made", some_passages(60)), ("odd", ODD)):
            build_store(corpus_of(passages, name), StoreOptions())
            build_index(name, "bm25", open_store(name))
            build_vectors(name, encoder_spec("minilm"), open_store(name), EmbedOptions())
            build_index(name, "minilm-hnsw", open_store(name))
        for name in ("wiki2018@3", "wiki2020"):
            build_store(corpus_of(ARTICLES, name), StoreOptions())
            build_index(name, "bm25", open_store(name))
    return home


@pytest.fixture(scope="module")
def url(home_of_two: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home_of_two))
        retrievers = ("bm25", "minilm", "bm25+minilm", "bm25+minilm-hnsw")
        with serving(Settings(corpora=("made", "odd"), retrievers=retrievers, port=0)) as where:
            yield where


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context() as context:
        yield context


@pytest.fixture
def page(context: BrowserContext, url: str) -> Iterator[Page]:
    """A page that requests nothing but the server and has no errors."""
    page = context.new_page()
    asked, mistakes = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda message: mistakes.append(message.text) if message.type == "error" else None)
    yield page
    assert asked
    assert {urlsplit(where).netloc for where in asked} == {urlsplit(url).netloc}
    assert [mistake for mistake in mistakes if not re.search(r"status of \d+|ERR_INTERNET_DISCONNECTED", mistake)] == []


@pytest.mark.parametrize(
    ("queries", "setting"),
    [
        (["river whale"], {"retriever": "bm25"}),
        (GROUP, {"retriever": "bm25+minilm", "merge": "rrf"}),
        (GROUP, {"retriever": "bm25+minilm", "fuse": "weighted-normalized", "merge": "interleave", "rerank": "primary"}),
        (GROUP, {"retriever": "minilm", "merge": "sum", "dedup": "text"}),
    ],
)
def test_passages_scores_and_provenance_are_those_of_the_api(page: Page, url: str, queries: list[str], setting: dict[str, str]) -> None:
    page.goto(link_to(url, queries, setting))
    shown = shown_passages(page)
    assert shown == approximate(api_results(url, queries, setting))
    assert re.fullmatch(r"10 passages in [\d.]+ m?s", page.locator("#status").inner_text())


def test_what_is_typed_and_chosen_is_searched(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator(".welcome")).to_contain_text("60 passages")
    page.get_by_label("Queries").fill("  a river and a whale \n\nplanets of metal\n")
    expect(page.locator("#group")).to_contain_text("2 queries, one group")
    page.get_by_label("Retriever").select_option("bm25")
    page.get_by_label("Merge").select_option("sum")
    page.get_by_label("Duplicates").select_option("text")
    page.get_by_label("Passages").fill("7")
    page.get_by_role("button", name="Search").click()
    shown = shown_passages(page)
    assert shown == api_results(url, GROUP, {"retriever": "bm25", "merge": "sum", "dedup": "text"}, k=7)
    assert page.title() == "a river and a whale · idx"


def test_words_of_the_queries_are_marked_where_bm25_matches_them(page: Page, url: str) -> None:
    page.goto(link_to(url, ["the metals and the river's whales"], {"retriever": "bm25"}))
    shown = shown_passages(page)
    terms = set(english("the metals and the river's whales"))
    for hit, item in zip(shown, page.locator(".passage").all(), strict=True):
        words = [word for word in re.findall(r"\w+", f"{hit['title']} {hit['text']}") if terms & set(english(word))]
        assert item.locator("mark").all_inner_texts() == words != []
    page.goto(link_to(url, ["river"], {"retriever": "bm25"}, corpus="odd"))
    untitled = page.locator(".passage", has_text="no title")
    expect(untitled).to_be_visible()
    assert untitled.locator("mark").all_inner_texts() == ["rivers", "river's", "RIVER"]


def test_a_link_restores_everything(page: Page, context: BrowserContext, url: str) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(url)
    page.get_by_label("Queries").fill("\n".join(["Ähre & “quoted” #1 + 100%", *GROUP]))
    page.get_by_label("Passages").fill("5")
    page.get_by_label("Depth").fill("20")
    for label, value in {
        "Retriever": "bm25+minilm",
        "Fuse": "weighted-normalized",
        "Merge": "interleave",
        "Duplicates": "text",
        "Rerank": "primary",
    }.items():
        page.get_by_label(label).select_option(value)
    page.get_by_role("button", name="Search").click()
    shown = shown_passages(page)
    page.locator("#link").click()
    expect(page.locator("#link")).to_have_text("Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    shown_values = "[...document.querySelectorAll('#search :is(select, input, textarea)')].map((field) => [field.name, field.value])"
    other = context.new_page()
    other.goto(link)
    assert shown_passages(other) == approximate(shown)
    assert other.evaluate(shown_values) == page.evaluate(shown_values)
    assert len({name for name, _ in parse_qsl(urlsplit(link).fragment)}) == 9


def test_going_back_searches_what_was_searched_before(page: Page, url: str) -> None:
    page.goto(link_to(url, ["whale"], {"retriever": "bm25"}))
    before = shown_passages(page)
    page.get_by_label("Queries").fill("planet")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_title("planet · idx")
    page.go_back()
    expect(page).to_have_title("whale · idx")
    assert shown_passages(page) == before
    assert page.get_by_label("Queries").input_value() == "whale"


def test_everything_can_be_done_by_keyboard(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_label("Queries")).to_be_focused()
    page.keyboard.type("whale")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("planet")
    page.keyboard.press("Enter")
    assert [hit["row"] for hit in shown_passages(page)] == [
        hit["row"] for hit in api_results(url, ["whale", "planet"], {"retriever": "bm25"})
    ]
    for _ in range(30):  # the summary, corpus, retriever, …
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        if page.evaluate("document.activeElement.textContent") == "Search":
            break
    page.keyboard.press("Enter")  # the button
    shown_passages(page)
    while page.evaluate("document.activeElement.className") != "skip":
        page.keyboard.press("Shift+Tab")
    expect(page.get_by_text("Skip to results")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_be_focused()
    assert "q=whale" in page.url
    assert page.locator("[role=status]").get_attribute("aria-live") == "polite"
    unnamed = "[...document.querySelectorAll('input, select, textarea')].filter((field) => field.labels.length !== 1).length"
    assert page.evaluate(unnamed) == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_odd_passages_are_text_and_stay_in_their_place(page: Page, url: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(link_to(url, ["river"], {"retriever": "bm25"}, corpus="odd"))
    shown = {hit["id"]: hit for hit in shown_passages(page)}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for passage in ODD[:4]:
        assert (shown[passage.id]["title"], shown[passage.id]["text"]) == (passage.title, passage.text)
    assert page.locator("#results").locator("img, script, b:text-is('Bold')").count() == 0
    assert page.evaluate("document.ran") is None
    assert page.locator(".passage", has_text="Bold").first.locator("mark").all_inner_texts() == ["river"]
    assert page.locator(".title", has_text="نهر").first.evaluate("title => getComputedStyle(title.parentElement).direction") == "rtl"
    whole = page.locator(".passage", has_text="Length")
    assert whole.locator(".text").inner_text().endswith(f" … Show all {len(ODD[4].text):,} characters")
    whole.get_by_role("button", name="Show all").click()
    assert whole.locator(".text").text_content() == ODD[4].text


def test_the_page_refuses_markup_and_strangers(context: BrowserContext, url: str) -> None:
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#search")).to_be_visible()
    for unsafe in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.head.append(Object.assign(document.createElement('script'), {text: '1'}))",
    ):
        with pytest.raises(sync_api.Error, match="TrustedHTML|TrustedScript"):
            page.evaluate(unsafe)
    refused = page.evaluate(
        """() => new Promise((resolve) => {
            const found = [];
            document.addEventListener("securitypolicyviolation", (event) => {
                found.push(event.effectiveDirective);
                if (found.length === 3) resolve(found.sort());
            });
            new Image().src = "http://127.0.0.2:9/x.png";
            fetch("http://127.0.0.2:9/").catch(() => null);
            const style = document.createElement("style");
            style.textContent = "body { color: red }";
            document.head.append(style);
        })"""
    )
    assert refused == ["connect-src", "img-src", "style-src-elem"]


def test_what_the_server_refuses_is_said_in_its_words(page: Page, url: str) -> None:
    page.goto(link_to(url, ["whale"], {"retriever": "bm52"}))
    expect(page.get_by_role("alert")).to_contain_text("unknown retriever 'bm52': did you mean 'bm25'")
    expect(page.locator("#status")).to_have_text("no answer")
    page.goto(link_to(url, ["whale"], {"retriever": "bm25"}, k=5_000))
    expect(page.get_by_role("alert")).to_contain_text("k is 5000: it should be less than or equal to 1000")


def test_nothing_found_and_nobody_there_are_said(page: Page, context: BrowserContext, url: str) -> None:
    page.goto(link_to(url, ["xyzzy"], {"retriever": "bm25"}))
    expect(page.locator(".empty")).to_have_text("bm25 finds no passage for this query.")
    context.set_offline(True)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer. Is it still running?")
    context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".empty")).to_be_visible()


def test_a_search_under_way_is_shown_and_a_new_one_takes_its_place(context: BrowserContext, made: Path) -> None:
    opened: dict[str, Gated] = {}
    page = context.new_page()
    with serving(Settings(corpora=("made",), port=0), open_gated(opened)) as where:
        page.goto(where)
        page.get_by_label("Queries").fill("whale")
        opened["bm25"].close_gate()
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_have_text("Searching …")
        expect(page.locator(".placeholder")).to_be_visible()
        expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
        page.get_by_label("Queries").fill("planet")
        page.keyboard.press("Enter")
        opened["bm25"].gate.set()
        shown = shown_passages(page)
        assert {match["query"] for hit in shown for match in hit["provenance"]} == {"planet"}
        assert page.locator("#results").get_attribute("aria-busy") is None
        page.get_by_label("Queries").fill("poison")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the search failed: the server's log says why")


def test_a_key_is_asked_for_kept_in_the_tab_and_in_no_link(context: BrowserContext, made: Path) -> None:
    with serving(Settings(corpora=("made",), port=0, api_key="top secret"), until_ready=True) as where:
        page = context.new_page()
        page.goto(link_to(where, ["whale"], {"retriever": "bm25"}))
        page.get_by_label("This server requires its API key").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("The server does not accept this key.")
        page.get_by_label("This server requires its API key").fill("top secret")
        page.keyboard.press("Enter")
        assert len(shown_passages(page)) == 10
        assert "secret" not in page.url + str(page.locator("#link").get_attribute("href"))
        assert page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]") == [0, "", ["top secret"]]
        page.reload()
        assert len(shown_passages(page)) == 10
        other = context.new_page()
        other.goto(where)
        expect(other.get_by_label("This server requires its API key")).to_be_visible()

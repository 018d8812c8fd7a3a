"""The search page in headless Chromium: it shows the API's response as text, copies links and code, and requests nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import Forwarding, at_home, build_corpus, opener_of
from tests.retrievers.server.browsing import api_results, approximate, browsing, fill_in, link_to, search, shown_passages, watched_page
from tests.retrievers.server.serving import Gated, ask, open_gated, serving, wait_until
from wikidx.corpora.passage import Passage
from wikidx.indexer.analysis.english import english
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.server.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'test-full'")
expect = sync_api.expect

pytestmark = pytest.mark.slow  # a browser: twenty seconds

ODD = [
    Passage("html", "<b>Bold</b> <script>document.ran = 1</script>", 'a river <img src="x" onerror="document.ran = 2"> &lt;i&gt;'),
    Passage("rtl", "نهر النيل", "نهر النيل river هو أطول أنهار أفريقيا"),
    Passage("long", "r" * 300, "river " + "x" * 600),
    Passage("untitled", "", "rivers, the river's bank\n\nand a RIVER"),
    Passage("whole", "Length", "the river runs on. " * 200),
]
ARTICLES = [
    Passage("1", "AC/DC", "a band from Sydney"),
    Passage("2", "Star Wars: Music: Themes", "a theme for a band"),
    Passage("infobox:2", "Tool: Live", "a band on stage"),
]
CORPORA = {"made": some_passages(60), "odd": ODD, "wiki2018@3": ARTICLES, "wiki2020": ARTICLES}
GROUP = ["a river and a whale", "planets of metal"]
BM25 = {"retriever": "bm25"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the corpora 'made' and 'odd', and a few passages under the names of Wikipedia corpora."""
    with at_home(tmp_path_factory.mktemp("page")) as home:
        for name, passages in CORPORA.items():
            build_corpus(name, passages, "bm25", "minilm", "minilm-hnsw")
        yield home


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    retrievers = ("bm25", "minilm", "bm25+minilm", "bm25+minilm-hnsw")
    with serving(Settings(corpora=tuple(CORPORA), retrievers=retrievers, port=0)) as where:
        yield where


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context() as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    with watched_page(context) as page:
        yield page


@pytest.mark.parametrize(
    ("queries", "setting"),
    [
        (["river whale"], BM25),
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


def test_words_of_the_queries_are_marked_where_bm25_matches_them(page: Page, url: str) -> None:
    page.goto(link_to(url, ["the metals and the river's whales"], BM25))
    shown = shown_passages(page)
    terms = set(english("the metals and the river's whales"))
    for hit, item in zip(shown, page.locator(".passage").all(), strict=True):
        words = [word for word in re.findall(r"\w+", f"{hit['title']} {hit['text']}") if terms & set(english(word))]
        assert item.locator("mark").all_inner_texts() == words != []
    page.goto(link_to(url, ["river"], BM25, corpus="odd"))
    untitled = page.locator(".passage", has_text="no title")
    expect(untitled).to_be_visible()
    assert untitled.locator("mark").all_inner_texts() == ["rivers", "river's", "RIVER"]


def test_what_is_typed_and_chosen_is_searched_and_a_link_restores_it(page: Page, context: BrowserContext, url: str) -> None:
    page.goto(url)
    expect(page.locator(".welcome")).to_contain_text("60 passages")
    rules = page.get_by_label("Rerank").locator("option")
    expect(rules).to_have_text(["none", "by first query"])  # those that the server can follow
    group = ["Ähre & “quoted” #1 + 100%", *GROUP]
    fill_in(page, {"Queries": "\n".join(group), "Passages": "5", "Depth": "20", "Retriever": "bm25+minilm"})
    expect(page.locator("#group")).to_contain_text("3 queries, one group")
    setting = {"fuse": "weighted-normalized", "merge": "interleave", "dedup": "text", "rerank": "primary"}
    fill_in(page, {name.title().replace("Dedup", "Duplicates"): value for name, value in setting.items()})
    shown = search(page)
    assert shown == approximate(api_results(url, group, {**setting, "retriever": "bm25+minilm", "depth": 20}, k=5))
    assert page.title() == f"{group[0]} · idx"
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
    page.goto(link_to(url, ["whale"], BM25))
    before = shown_passages(page)
    fill_in(page, {"Queries": "  planet \n\n"})
    search(page)
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
    assert shown_passages(page) == api_results(url, ["whale", "planet"], BM25)
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
    page.goto(link_to(url, ["river"], BM25, corpus="odd"))
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
    for unsafe in ("document.body.innerHTML = '<b>x</b>'", "document.createElement('script').text = '1'"):
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
            document.head.append(Object.assign(document.createElement("style"), {textContent: "body { color: red }"}));
        })"""
    )
    assert refused == ["connect-src", "img-src", "style-src-elem"]


@pytest.mark.parametrize(
    ("retriever", "k", "words"),
    [
        ("bm52", 10, "unknown retriever 'bm52': did you mean 'bm25'"),
        ("bm25", 5_000, "k is 5,000, at most 1,000 are allowed"),
    ],
)
def test_what_the_server_refuses_is_said_in_its_words(page: Page, url: str, retriever: str, k: int, words: str) -> None:
    page.goto(link_to(url, ["whale"], {"retriever": retriever}, k=k))
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.locator("#status")).to_have_text("no answer")


def test_nothing_found_and_nobody_there_are_said(page: Page, context: BrowserContext, url: str) -> None:
    page.goto(link_to(url, ["xyzzy"], BM25))
    expect(page.locator(".empty")).to_have_text("bm25 finds no passage for this query.")
    context.set_offline(True)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer. Is it still running?")
    context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".empty")).to_be_visible()


def test_a_search_under_way_is_shown_and_a_new_one_takes_its_place(page: Page) -> None:
    opened = list[Gated]()
    with serving(Settings(corpora=("made",), port=0), open_gated(opened)) as where:
        page.goto(where)
        (gated,) = opened
        gated.close_gate()
        page.keyboard.type("whale\n")
        expect(page.locator("#status")).to_have_text("Searching …")
        expect(page.locator(".placeholder")).to_be_visible()
        expect(page.locator("#results")).to_have_attribute("aria-busy", "true")
        fill_in(page, {"Queries": "planet"})
        page.keyboard.press("Enter")
        gated.gate.set()
        assert {match["query"] for hit in shown_passages(page) for match in hit["provenance"]} == {"planet"}
        assert page.locator("#results").get_attribute("aria-busy") is None
        fill_in(page, {"Queries": "poison"})
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the search failed: the server's log says why")


def test_a_key_is_asked_for_kept_in_the_tab_and_in_no_link_or_code(
    page: Page, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Settings(corpora=("made",), port=0, api_key="top secret")) as where:
        page.goto(link_to(where, ["whale"], BM25))
        for key in ("wrong", "top secret"):
            fill_in(page, {"This server requires its API key": key})
            page.keyboard.press("Enter")
            if key == "wrong":
                expect(page.get_by_role("alert")).to_contain_text("The server does not accept this key.")
        shown = shown_passages(page)
        assert len(shown) == 10
        assert "secret" not in page.url + str(page.locator("#link").get_attribute("href"))
        assert page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]") == [0, "", ["top secret"]]
        page.reload()
        assert shown_passages(page) == shown
        monkeypatch.setenv("IDX_API_KEY", "top secret")
        for name, run in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
            page.get_by_role("button", name=name).click()
            code = page.locator("#code").inner_text()
            assert "secret" not in code
            assert str(shown[0]["score"]) in subprocess.run([*run, code], capture_output=True, check=True, text=True).stdout
        other = context.new_page()
        other.goto(where)
        expect(other.get_by_label("This server requires its API key")).to_be_visible()


SEARCH_FOR = "Special:Search?fulltext=1&search="


@pytest.mark.parametrize(
    ("corpus", "links"),
    [
        ("wiki2018@3", ["AC%2FDC", "Star%20Wars%3A%20Music%3A%20Themes", "Tool%3A%20Live"]),
        ("wiki2020", [SEARCH_FOR + "AC%2FDC", SEARCH_FOR + "Star%20Wars%3A%20Music", SEARCH_FOR + "Tool%3A%20Live"]),
        ("made", []),
    ],
)
def test_titles_of_wikipedia_link_to_their_articles(page: Page, url: str, corpus: str, links: list[str]) -> None:
    page.goto(link_to(url, ["band whale"], BM25, corpus=corpus))
    shown = sorted(shown_passages(page), key=lambda hit: hit["row"])
    found = page.locator("a.title").evaluate_all("links => links.map((link) => [link.href, link.rel])")
    assert sorted(found) == [[f"https://en.wikipedia.org/wiki/{link}", "noreferrer"] for link in links]
    assert not links or [hit["title"] for hit in shown] == [passage.title for passage in ARTICLES]


def test_weights_and_search_parameters_are_sent_and_linked(page: Page, url: str) -> None:
    page.goto(link_to(url, GROUP, BM25))
    shown_passages(page)
    for label in ("Weight of bm25", "ef_search", "Rerank depth"):
        expect(page.get_by_label(label)).to_have_count(0)
    setting = {"retriever": "bm25+minilm-hnsw", "fuse": "weighted", "rerank": "primary"}
    given = {"weights": {"minilm-hnsw": 7.5}, "rerank_depth": 12, "ef_search": 31}
    fill_in(page, {name.title(): value for name, value in setting.items()})
    expect(page.get_by_label("Weight of bm25")).to_have_attribute("placeholder", "1")
    fill_in(page, {"Weight of minilm-hnsw": "7.5", "Rerank depth": "12", "ef_search": "31"})
    with page.expect_request("**/v1/search") as asked:
        shown = search(page)
    assert asked.value.post_data_json == {"groups": [GROUP], "corpus": "made", "highlight": True, **setting, **given}
    assert shown == approximate(api_results(url, GROUP, {**setting, **given}))
    page.reload()
    assert shown_passages(page) == approximate(shown)
    assert [page.get_by_label(label).input_value() for label in ("Weight of minilm-hnsw", "ef_search")] == ["7.5", "31"]
    fill_in(page, {"ef_search": "0"})
    page.get_by_role("button", name="Search").click()
    assert page.get_by_label("ef_search").evaluate("field => field.validity.rangeUnderflow")


def test_parameters_of_an_index_are_offered_when_it_is_open(page: Page) -> None:
    is_open = threading.Event()

    def open_late(retriever: Retriever) -> Retriever:
        assert is_open.wait(30)
        return Forwarding(retriever)

    settings = Settings(corpora=("made",), retrievers=("minilm-hnsw",), port=0)
    with serving(settings, opener_of(open_late), until_ready=False) as where:
        wait_until(lambda: ask(where, "/").status == 200)
        page.goto(link_to(where, ["whale"], {"retriever": "minilm-hnsw", "ef_search": "31"}))
        expect(page.get_by_label("ef_search")).to_have_value("31")
        expect(page.locator("#status")).to_contain_text("is being opened")
        is_open.set()
        shown_passages(page)
        fill_in(page, {"ef_search": "", "Passages": "7"})
        expect(page.get_by_label("ef_search")).to_have_count(1)


@pytest.mark.parametrize("setting", [BM25, {"retriever": "bm25+minilm", "fuse": "weighted-normalized", "rerank": "primary"}])
def test_code_is_copied_that_searches_the_same(page: Page, url: str, setting: dict[str, str]) -> None:
    page.goto(link_to(url, ['the river\'s “bank” \\ $HOME `ls` "whale"', "a\tplanet 🜁"], setting, k=4))
    shown = shown_passages(page)
    texts = {}
    for name, copies in (("curl", "Copy link Copied Python"), ("Python", "Copy link curl Copied")):
        page.get_by_role("button", name=name).click()
        expect(page.locator("#copies")).to_have_text(copies)
        texts[name] = page.evaluate("navigator.clipboard.readText()")
        assert page.locator("#code").text_content() == texts[name]
    answer = subprocess.run(["bash", "-c", texts["curl"]], capture_output=True, check=True).stdout
    (ranking,) = json.loads(answer)["rankings"]
    assert shown == approximate(ranking)
    printed = subprocess.run([sys.executable, "-c", texts["Python"]], capture_output=True, check=True, text=True).stdout
    assert printed.split() == " ".join(f"{hit['score']} {hit['title']}" for hit in ranking).split()

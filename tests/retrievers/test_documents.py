"""Passages around a hit, and documents: in this process, over HTTP and from asyncio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import corpus_of
from tests.retrievers.server.serving import ask, search, serving
from wikidx.base.errors import ArgumentError, IdxError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.document import Document, Heading, LocatedDocument
from wikidx.corpora.reading.splitters import Split, split
from wikidx.indexer.build import build_index
from wikidx.retrievers.async_client import AsyncRemoteSearcher
from wikidx.retrievers.base import OpenedSearcher
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

WORDS = "river whale ocean fox bell stone café naïve king red deep metal".split()
RULES = {"exact": "sentences:2", "overlapping": "sentences:3", "words": "words:4", "plain": "none"}


def made_documents(seed: int = 0, n: int = 30) -> list[Document]:
    """Return documents of one to ten sentences on two pages, the second half of which has a heading."""
    rng = np.random.default_rng(seed)
    documents = []
    for number in range(n):
        sentences = [" ".join(rng.choice(WORDS, rng.integers(2, 9))).capitalize() + "." for _ in range(rng.integers(1, 10))]
        half = "  ".join(sentences[: len(sentences) // 2])
        text = f"{half}\n\nPart {number}\n{' '.join(sentences[len(sentences) // 2 :])}"
        documents.append(Document(f"d{number}", f"T{number}", text, (0, len(half)), (Heading(len(half) + 2, 1, f"Part {number}"),)))
    return documents


def build_documents(documents: list[Document], rule: str, name: str) -> None:
    located = list(split([LocatedDocument(document, "f", n) for n, document in enumerate(documents, 1)], Split.parse(rule)))
    build_store(Corpus(name=name, summary="", read=lambda files, on_bad: iter(located), n_passages=None), StoreOptions())
    build_index(name, "bm25", open_store(name))


@pytest.fixture(scope="module")
def documents_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with corpora of the same documents, split by two rules, and one that was not split."""
    home = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_documents(made_documents(), "sentences:2", "exact")
        build_documents(made_documents(), "words:4", "words")
        build_store(corpus_of([Passage("d1", "", "fox")], "plain"), StoreOptions())
        build_index("plain", "bm25", open_store("plain"))
    return home


@pytest.fixture
def documents(documents_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IDX_HOME", str(documents_home))
    return documents_home


@pytest.fixture(scope="module")
def documents_url(documents_home: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(documents_home))
        settings = Settings(corpora=("exact", "words", "plain"), retrievers=("bm25",), port=0, limits=Limits(max_ids=4))
        with serving(settings) as url:
            yield url


@pytest.fixture(params=["here", "served"])
def exact(request: pytest.FixtureRequest, documents: Path) -> Iterator[OpenedSearcher]:
    if request.param == "here":
        yield open_searcher("exact", "bm25")
    else:
        with RemoteSearcher(request.getfixturevalue("documents_url"), corpus="exact") as searcher:
            yield searcher


def test_hits_know_their_places(exact: OpenedSearcher) -> None:
    texts = {document.id: document.text for document in made_documents()}
    hits = exact.search(["fox", "whale river"], k=20)
    assert sum(map(len, hits)) > 20
    for hit in (hit for ranking in hits for hit in ranking):
        assert hit.span is not None
        assert texts[hit.span.document][hit.span.start : hit.span.end] == hit.text
        assert hit.id.startswith(f"{hit.span.document}#")
        assert hit.to_dict()["span"] == hit.span._asdict()
        assert (hit.span.page, hit.span.heading != "") in ((1, False), (2, True), (2, False))


def test_context_is_what_stands_around_a_hit(exact: OpenedSearcher) -> None:
    for hit in exact.search(["fox"], k=30)[0]:
        name, number = hit.id.split("#")
        whole = exact.document(name)
        assert (whole.document, whole.first, whole.n_passages, len(whole)) == (name, 0, len(whole), len(whole))
        around = exact.context(hit, before=1, after=2)
        first = max(0, int(number) - 1)
        assert (around.document, around.first, around.n_passages) == (name, first, len(whole))
        assert (list(around), around.spans) == (whole[first : int(number) + 3], whole.spans[first : int(number) + 3])
        assert list(exact.context(hit.id, 0, 0)) == list(exact.context(hit.passage, 0, 0)) == [hit.passage]


def test_document_has_its_text(exact: OpenedSearcher) -> None:
    for document in made_documents():
        text, found = document.text.strip(), exact.document(document.id)
        assert (len(found.text), found.text.split()) == (len(text), text.split())
        assert [passage.id for passage in found] == [f"{document.id}#{n}" for n in range(len(found))]


def test_text_of_passages_that_overlap_or_are_not_exact(documents: Path) -> None:
    document = Document("o", "", "a b c d e f g")
    located = list(split([LocatedDocument(document, "f", 1)], Split.parse("words:3")))
    moved = [
        each._replace(span=each.span._replace(start=start, end=start + 5))
        for each, start in zip(located, (0, 4, 8), strict=False)
        if each.span
    ]
    texts = [
        each._replace(passage=each.passage._replace(text=document.text[start : start + 5]))
        for each, start in zip(moved, (0, 4, 8), strict=True)
    ]
    build_store(
        Corpus(name="o", summary="", read=lambda files, on_bad: iter(texts), n_passages=None), StoreOptions(rebuild=True, replace=True)
    )
    build_index("o", "bm25", open_store("o"), force=True)
    assert open_searcher("o", "bm25").document("o").text == document.text
    words = open_searcher("words", "bm25").document("d2")
    assert words.text == " ".join(made_documents()[2].text.split())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda searcher: searcher.context("d99#0"), "no passage of 'exact' has the id 'd99#0'"),
        (lambda searcher: searcher.document("d2#0"), "no document of 'exact' has the id 'd2#0'"),
        (lambda searcher: searcher.context("d2#0", before=-1), "-1 passages before and 1 after a hit: numbers from 0 on are possible"),
    ],
)
def test_what_is_not_there_is_said(exact: OpenedSearcher, call: object, message: str) -> None:
    with pytest.raises((IdxError, ArgumentError), match=f"^{re.escape(message)}"):
        call(exact)  # type: ignore[operator]


def test_corpus_that_was_not_split_has_no_documents(documents: Path, documents_url: str) -> None:
    with RemoteSearcher(documents_url, corpus="plain") as remote:
        for searcher in (open_searcher("plain", "bm25"), remote):
            for read in (searcher.context, searcher.document):
                with pytest.raises(IdxError, match="the passages of 'plain' do not say which document they are of: build it from"):
                    read("d1")
    assert "span" not in search(documents_url, queries=["fox"], corpus="plain").json["rankings"][0][0]


def test_asyncio(documents: Path, documents_url: str) -> None:
    async def read() -> list[object]:
        async with AsyncRemoteSearcher(documents_url, corpus="exact") as searcher:
            return [await searcher.context("d3#1"), await searcher.document("d3")]

    here = open_searcher("exact", "bm25")
    assert asyncio.run(read()) == [here.context("d3#1"), here.document("d3")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("document=d6&first=1&count=1", [1]),
        ("document=d6&first=99", []),
        ("document=d6&page=2", None),
        ("document=d6&page=1&count=1", None),
        ("document=d6", [0, 1, 2, 3]),  # as many as are allowed
        ("passage=d6%231&before=2147483647", [0, 1]),
    ],
)
def test_windows_over_http(documents_url: str, documents: Path, query: str, expected: list[int] | None) -> None:
    whole = open_searcher("exact", "bm25").document("d6")
    if expected is None:
        expected = [n for n, span in enumerate(whole.spans) if span and span.page == int(query[len("document=d6&page=")])][:4]
    answer = ask(documents_url, f"/v1/corpora/exact/documents?{query}").json
    assert [passage["id"] for passage in answer["passages"]] == [f"d6#{n}" for n in expected]
    assert [passage["text"] for passage in answer["passages"]] == [whole[n].text for n in expected]
    assert answer["n_passages"] == len(whole) > 3


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 422, "give either document=ID or passage=ID"),
        ("document=d1&passage=d1%230", 422, "give either document=ID or passage=ID"),
        ("document=d1&first=-1", 422, "first is '-1': it should be a number from 0 on"),
        ("document=d1&count=99999999999", 422, "count is '99999999999': it should be a number from 0 on"),
        ("document=d1&last=1", 422, "unknown field 'last': known: document, passage, before, after, first, count, page"),
        ("passage=d6%231&before=1&after=9", 422, "5 passages around 'd6#1' are asked for, 4 are allowed"),
        ("document=nothing", 404, "no document of 'exact' has the id 'nothing'"),
    ],
)
def test_windows_that_cannot_be(documents_url: str, query: str, status: int, message: str) -> None:
    answer = ask(documents_url, f"/v1/corpora/exact/documents?{query}")
    assert (answer.status, answer.json["error"]) == (status, message)

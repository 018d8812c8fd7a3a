from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.conftest import read_rows
from wikidx.base import errors
from wikidx.base.errors import UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.retrievers import opening
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, OpenRetriever, open_retriever, open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage("1", "Fox", "The red fox."), Passage("2", "Whale", "The blue whale.")])


@pytest.mark.parametrize(("corpus", "retriever", "error", "message"), read_rows("retrievers/not_there.jsonl"))
def test_what_is_not_there_is_said(store: PassageStore, corpus: str, retriever: str, error: str, message: str) -> None:
    if "+" in retriever:
        build_index("made", "bm25", store)
    with pytest.raises(getattr(errors, error), match=message):
        open_searcher(corpus, retriever)


def recording(opened: list[str]) -> OpenRetriever:
    """Return an opener that records the names and opens BM25."""

    def opener(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        opened.append(name)
        return open_retriever(corpus, "bm25", store, device=device)

    return opener


def test_an_index_is_opened_once_by_whichever_name(store: PassageStore) -> None:
    build_index("made", "bm25", store)
    opened = list[str]()
    corpora = OpenCorpora(opener=recording(opened))
    for name in ("bm25+gtr-base", "gtr", "gtr-base", "gtr-base-int8+bm25"):
        assert corpora.searcher("made", RetrieverName.parse(name)).search(["whale"])
    assert opened == ["bm25", "gtr", "gtr-int8"]


def test_a_weight_may_name_an_encoder_by_its_other_name(store: PassageStore) -> None:
    build_index("made", "bm25", store)
    bm25 = open_retriever("made", "bm25", store)
    searcher = LocalSearcher(store, {"gtr": bm25, "bm25": bm25})
    (ranking,) = searcher.search(["blue whale"], SearchOptions(fuse="weighted", weights={"gtr-base": 2.0}))
    (bm25_alone,) = LocalSearcher(store, {"bm25": bm25}).search(["blue whale"])
    assert ranking[0].score == pytest.approx(3 * bm25_alone[0].score)


@pytest.mark.parametrize("device", ["auto", "cuda:0,1", "cpu"])
def test_a_reranker_is_opened_once_and_after_the_indexes(device: str, store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index("made", "bm25", store)
    steps = list[str]()

    monkeypatch.setattr(opening, "find_reranker", lambda name: lambda device: steps.append(f"{name} on {device}"))
    corpora = OpenCorpora(device=device, opener=recording(steps))
    for _ in range(2):
        corpora.searcher("made", RetrieverName.parse("gtr >> simlm"), "simlm")
    assert steps == ["gtr", f"simlm on {device}"]


def test_an_unknown_reranker_is_refused_before_an_index_is_opened(store: PassageStore) -> None:
    corpora = OpenCorpora(opener=lambda *arguments, device: pytest.fail("opened"))
    with pytest.raises(UnknownNameError, match="simml"):
        corpora.searcher("made", RetrieverName.parse("bm25"), "simml")


@pytest.mark.parametrize("is_large", [False, True])
def test_the_device_of_a_search_is_reported_where_it_decides_the_speed(
    store: PassageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_large: bool
) -> None:
    build_index("made", "minilm", store)
    if is_large:
        monkeypatch.setattr(opening, "_LARGE_CORPUS", len(store))
    with caplog.at_level(logging.INFO, logger="wikidx.retrievers.opening"):
        open_searcher("made", "minilm", device="cpu")
    said = [record.getMessage() for record in caplog.records if record.name == "wikidx.retrievers.opening"]
    reports = [
        "minilm: exact search on the CPU, as requested: 3.1 kB of float32 vectors (2 × 384)",
        "minilm: queries are encoded in float32 on cpu",
    ]
    assert said == (reports if is_large else [])


def test_queries_are_encoded_in_the_precision_that_is_chosen(store: PassageStore) -> None:
    build_index("made", "minilm", store)
    name = RetrieverName.parse("bm25+minilm", "made")
    build_index("made", "bm25", store)
    found = [OpenCorpora(query_dtype=dtype).searcher("made", name).query_encoders for dtype in (None, "bfloat16")]
    assert found == [{"minilm": {"dtype": dtype, "device": "cpu"}} for dtype in ("float32", "bfloat16")]

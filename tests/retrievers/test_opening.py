from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from wikidx.corpora.errors import ArtifactMissing, InputError, UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Placement
from wikidx.indexer.build import build_index
from wikidx.retrievers import opening
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, open_retriever, open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage("1", "Fox", "The red fox."), Passage("2", "Whale", "The blue whale.")])


def test_several_retrievers_are_joined_with_a_plus(store: PassageStore) -> None:
    for name in ("bm25", "minilm"):
        build_index("made", name, store)
    (ranking,) = open_searcher("made", "bm25+minilm").search(["a blue whale"])
    assert [(hit.passage.id, [found.retriever for found in hit.provenance]) for hit in ranking] == [
        ("2", ["bm25", "minilm"]),
        ("1", ["minilm"]),
    ]


@pytest.mark.parametrize(
    ("corpus", "retriever", "error", "message"),
    [
        ("made", "bm52", UnknownNameError, "unknown retriever 'bm52': did you mean 'bm25'"),
        ("made", "bm25+minlm", UnknownNameError, "unknown retriever 'minlm': did you mean 'minilm'"),
        ("made", "bm25+bm25", InputError, "names a retriever twice"),
        ("made", "bm25+gtr+gtr-base", InputError, "names a retriever twice"),
        ("made", "gtr-base-int8+gtr-int8", InputError, "names a retriever twice"),
        ("made", "bm25", ArtifactMissing, "idx build made --bm25"),
        ("made", "minilm", ArtifactMissing, "idx build made --encoder minilm"),
        ("sample", "bm25", ArtifactMissing, "'sample' is not built: run 'idx build sample'"),
        ("sampel", "bm25", UnknownNameError, "unknown corpus 'sampel': did you mean 'sample'"),
        ("../made", "bm25", InputError, "cannot be a name"),
    ],
)
def test_what_is_not_there_is_said(store: PassageStore, corpus: str, retriever: str, error: type[Exception], message: str) -> None:
    if "+" in retriever:
        build_index("made", "bm25", store)
    with pytest.raises(error, match=message):
        open_searcher(corpus, retriever)


def test_an_index_is_opened_once_by_whichever_name(store: PassageStore) -> None:
    build_index("made", "bm25", store)
    opened = list[str]()

    def opener(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        opened.append(name)
        return open_retriever(corpus, "bm25", store, device=device)

    corpora = OpenCorpora(opener=opener)
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


@pytest.mark.parametrize(("device", "expected"), [("auto", "cuda:1"), ("cuda:0,1", "cuda:0,1"), ("cpu", "cpu")])
def test_a_reranker_is_opened_once_and_by_auto_on_the_device_of_an_encoder(
    device: str, expected: str, store: PassageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index("made", "bm25", store)
    steps = list[str]()

    def open_on(name: str) -> Callable[[str], Any]:
        def open_here(device: str) -> object:
            steps.append(f"{name} on {device}")
            return SimpleNamespace()

        return open_here

    def opener(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        opened: Any = open_retriever(corpus, "bm25", store)
        opened.encoder = SimpleNamespace(device="cuda:1")
        steps.append(name)
        return opened  # type: ignore[no-any-return]

    monkeypatch.setattr(opening, "find_reranker", open_on)
    corpora = OpenCorpora(device=device, opener=opener)
    for _ in range(2):
        corpora.searcher("made", RetrieverName.parse("gtr >> simlm"), "simlm")
    assert steps == ["gtr", f"simlm on {expected}"]


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
    assert said == (["minilm: exact search on the CPU, as requested: 3.1 kB of float32 vectors (2 × 384)"] if is_large else [])


@pytest.mark.parametrize(
    ("device", "placement", "expected"),
    [
        ("auto", ("cuda:1", "cuda:3"), "cuda:1"),
        ("auto", ("cpu",), "auto"),
        ("cuda:2,3", ("cuda:2", "cuda:3"), "cuda:2,3"),
    ],
)
def test_queries_are_encoded_where_the_vectors_are(
    device: str, placement: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = SimpleNamespace(placement=Placement(placement, "there"))
    devices = list[str]()
    monkeypatch.setattr("wikidx.indexer.build.open_vector_index", lambda *arguments, device: index)
    monkeypatch.setattr("wikidx.indexer.build.open_vectors", lambda *arguments: None)
    monkeypatch.setattr(opening, "open_query_encoder", lambda corpus, name, *, device, dtype: devices.append(f"{device} {dtype}"))
    monkeypatch.setattr(opening, "DenseRetriever", lambda *arguments: None)
    opening.open_retriever("sample", "contriever", [], device=device, query_dtype="bfloat16")  # type: ignore[arg-type]
    assert devices == [f"{expected} bfloat16"]


def test_queries_are_encoded_in_the_precision_that_is_chosen(store: PassageStore) -> None:
    build_index("made", "minilm", store)
    found = [OpenCorpora(query_dtype=dtype).retriever("made", "minilm").encoder.dtype for dtype in (None, "bfloat16")]  # type: ignore[attr-defined]
    assert found == ["float32", "bfloat16"]

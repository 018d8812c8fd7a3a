"""Retrievers on other servers: a real ``idx serve``, and fakes on loopback that speak as RoutIR and Search-R1 do."""

from __future__ import annotations

import http.server
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import corpus_of
from tests.loopback import listening
from tests.retrievers.server.conftest import LIMITS, built_home, made, some_passages, url
from wikidx.base.errors import ArtifactMismatch, InputError, UnknownNameError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.retrievers.base import Rankings
from wikidx.retrievers.errors import BadAnswer, InvalidRequest, Unreachable
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.wire import contents

__all__ = ["LIMITS", "built_home", "made", "url"]  # fixtures

Answers = Mapping[str, Callable[[Any], Any]]
QUERIES = ["whale ocean", "fox", "planet metal book"]


@contextmanager
def faking(answers: Answers) -> Iterator[str]:
    """Answer "METHOD PATH" by a function of the request's JSON, any other with 404; yield the address."""

    class FakeServer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            found = answers.get(f"{self.command} {self.path}")
            body = json.dumps(found(json.loads(content or "null"))).encode() if found else b"<h1>Not Found</h1>"
            self.send_response(200 if found else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    with listening(FakeServer) as url:
        yield url


def ranked(rankings: Rankings) -> list[list[tuple[str, float]]]:
    return [[(hit.id, hit.score) for hit in ranking] for ranking in rankings]


@pytest.fixture
def local(made: Path) -> list[list[tuple[str, float]]]:
    return ranked(open_searcher("made").search(QUERIES, k=20, depth=20))


def test_another_idx_server_is_a_retriever_with_the_same_rows(url: str, local: list[list[tuple[str, float]]]) -> None:
    with open_searcher("made", f"remote:{url}") as remote, open_searcher("made", f"{{remote:{url}#bm25, bm25:0}}weighted") as fused:
        assert ranked(remote.search(QUERIES, k=20, depth=20)) == local
        assert ranked(fused.search(QUERIES, k=20, depth=20)) == local
        (ranking,) = remote.search(["fox"], k=1)
        assert ranking[0].provenance[0].retriever == f"remote:{url}"
        assert [len(ranking) for ranking in remote.search(["  ", "fox"])] == [0, 10]
        with pytest.raises(InvalidRequest, match="k is 200"):
            remote.search(["fox"], k=200)
    with pytest.raises(UnknownNameError, match="unknown retriever 'minilm'"):
        open_searcher("made", f"remote:{url}#minilm")


def test_passages_of_another_build_are_found_by_their_texts(url: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local corpus has the passages in another order with other ids, and lacks some."""
    expected = open_searcher("made").search(QUERIES, k=20)
    passages = [Passage(f"x{n}", each.title, each.text.upper()) for n, each in enumerate(reversed(some_passages()[::2]))]
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    build_store(corpus_of(passages), StoreOptions())
    known = {passage.text for passage in passages}
    rankings = open_searcher("made", f"remote:{url}").search(QUERIES, k=20, depth=20)
    for ranking, wanted in zip(rankings, expected, strict=True):
        assert [hit.text for hit in ranking] != []
        scores = {hit.text.upper(): hit.score for hit in wanted}
        assert {hit.text: hit.score for hit in ranking} == {text: score for text, score in scores.items() if text in known}


def test_a_search_r1_server_is_a_retriever(made: Path, local: list[list[tuple[str, float]]]) -> None:
    """Its ids count from 0, while the local ones do not: texts decide, and the id among equal texts."""
    asked: list[dict[str, Any]] = []

    def retrieve(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        passages = {passage.id: passage for passage in some_passages()}  # some titles have two lines, which become one
        lists = [
            next(line for query, line in zip(QUERIES, local, strict=True) if query == each) for each in body["queries"] if each in QUERIES
        ]
        found = [[(passages[name], score) for name, score in line[: body["topk"]]] for line in lists]
        documents = [
            [{"document": {"id": n, "contents": contents(each)}, "score": score} for n, (each, score) in enumerate(line)] for line in found
        ]
        return {"result": documents or [[]]}

    with faking({"POST /retrieve": retrieve}) as where, open_searcher("made", f"remote:{where}") as searcher:
        found = ranked(searcher.search(QUERIES, k=20, depth=20))
        texts = {passage.id: passage.text for passage in some_passages()}
        assert [[(texts[name], score) for name, score in line] for line in found] == [[(texts[n], s) for n, s in line] for line in local]
        assert asked[-1] == {"queries": QUERIES, "topk": 20, "return_scores": True}
        with pytest.raises(InputError, match="has one retriever: leave out '#e5'"):
            open_searcher("made", f"remote:{where}#e5")


def test_a_routir_server_is_a_retriever(made: Path, local: list[list[tuple[str, float]]]) -> None:
    by_query = {query: dict(sorted(line)) for query, line in zip(QUERIES, local, strict=True)}  # its scores are in no order

    def search(body: dict[str, Any]) -> dict[str, Any]:
        assert body["service"] == "dense"
        assert body["limit"] == 20
        return {"scores": by_query[body["query"]], "query": body["query"], "cached": False, "processed": True}

    answers: Answers = {"GET /avail": lambda body: {"search": ["sparse", "dense"], "fuse": ["RRF"], "score": []}, "POST /search": search}
    with faking(answers) as where:
        with open_searcher("made", f"remote:{where}#dense") as searcher:
            found = ranked(searcher.search(QUERIES, k=20, depth=20))
        assert [dict(line) for line in found] == list(by_query.values())
        assert all(line == sorted(line, key=lambda hit: -hit[1]) for line in found)
        with pytest.raises(UnknownNameError, match=f"unknown search service of {where} 'dens': did you mean 'dense'"):
            open_searcher("made", f"remote:{where}#dens")


def test_a_server_that_is_missing_foreign_or_of_another_corpus_is_one_line(made: Path) -> None:
    with pytest.raises(Unreachable, match="http://127.0.0.1:9 cannot be reached"):
        open_searcher("made", "{bm25, remote:http://127.0.0.1:9}rrf")
    with faking({}) as where, pytest.raises(BadAnswer, match=f"{where} answers neither as an idx server nor as RoutIR nor as Search-R1"):
        open_searcher("made", f"remote:{where}")
    fails = [False]

    def search(body: Any) -> Any:  # noqa: ANN401
        return {"error": "no"} if fails[0] else {"scores": {"elsewhere": 1.0}}

    with (
        faking({"GET /avail": lambda body: {"search": ["one"]}, "POST /search": search}) as where,
        open_searcher("made", f"remote:{where}") as searcher,
    ):
        with pytest.raises(ArtifactMismatch, match=f"none of the 1 results of {where} is in 'made', such as 'elsewhere'"):
            searcher.search(["fox"])
        fails[0] = True
        with pytest.raises(BadAnswer, match=f"{where}/search no longer answers as it did"):
            searcher.search(["fox"])


@pytest.mark.parametrize("score", ["nan", "inf", "-Infinity", 1e39])
def test_scores_that_are_no_finite_numbers_are_refused(score: object, made: Path) -> None:
    known, sound = some_passages()[0], [True]
    routir: Answers = {
        "GET /avail": lambda body: {"search": ["one"]},
        "POST /search": lambda body: {"scores": {known.id: 1.0 if sound[0] else score}},
    }
    document = {"id": 0, "contents": contents(known)}
    search_r1: Answers = {"POST /retrieve": lambda body: {"result": [[{"document": document, "score": 1.0 if sound[0] else score}]]}}
    for answers in (routir, search_r1):
        sound[0] = True
        with faking(answers) as where, open_searcher("made", f"remote:{where}") as searcher:
            assert len(searcher.search(["fox"])[0]) == 1
            sound[0] = False
            with pytest.raises(BadAnswer, match=f"^{where} answered the score (nan|inf|-inf|1e\\+39) for .*: a score is a finite float32$"):
                searcher.search(["fox"])


def test_a_corpus_that_lacks_some_passages_leaves_them_out_with_a_warning(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    def search(body: Any) -> Any:  # noqa: ANN401
        return {"scores": {"elsewhere": 2.0, "p7": 1.0}}

    with (
        faking({"GET /avail": lambda body: {"search": ["one"]}, "POST /search": search}) as where,
        open_searcher("made", f"remote:{where}") as searcher,
    ):
        assert ranked(searcher.search(["fox"])) == [[("p7", 1.0)]]
    assert "1 of 2 results" in caplog.text


def test_the_store_alone_suffices_for_a_remote_retriever(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    expected = ranked(open_searcher("made").search(QUERIES))
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    build_store(corpus_of(some_passages()), StoreOptions())
    assert ranked(open_searcher("made", f"remote:{url}").search(QUERIES)) == expected
    build_index("made", "bm25", open_store("made"))
    both = ranked(open_searcher("made", f"{{bm25, remote:{url}}}weighted%10").search(QUERIES))
    assert both == [[(name, 2 * score) for name, score in line] for line in expected]

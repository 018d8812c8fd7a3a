"""Retrievers on other servers: a real ``idx serve``, and fakes on loopback that speak as RoutIR and Search-R1 do."""

from __future__ import annotations

import http.server
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import listening
from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import build_corpus
from wikidx.base.errors import ArtifactMismatch, InputError, UnknownNameError
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import Rankings
from wikidx.retrievers.errors import BadAnswer, InvalidRequest, Unreachable
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.wire import contents

Answers = Mapping[str, Callable[[Any], Any]]
Pairs = list[tuple[str, float]]
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


def routir(search: Callable[[Any], Any], services: tuple[str, ...] = ("one",)) -> Answers:
    """Return the answers of a RoutIR server."""
    return {"GET /avail": lambda body: {"search": list(services), "fuse": ["RRF"], "score": []}, "POST /search": search}


def document(passage: Passage, score: object, number: int = 0) -> dict[str, Any]:
    """Return a result of a Search-R1 server, whose ids count from 0."""
    return {"document": {"id": number, "contents": contents(passage)}, "score": score}


def ranked(rankings: Rankings) -> list[Pairs]:
    return [[(hit.id, hit.score) for hit in ranking] for ranking in rankings]


@pytest.fixture
def local(made: Path) -> dict[str, Pairs]:
    """The results of each query in this process."""
    return dict(zip(QUERIES, ranked(open_searcher("made").search(QUERIES, k=20, depth=20)), strict=True))


def test_another_idx_server_is_a_retriever_with_the_same_rows(url: str, local: dict[str, Pairs]) -> None:
    with open_searcher("made", f"remote:{url}") as remote, open_searcher("made", f"{{remote:{url}#bm25, bm25:0}}weighted") as fused:
        for searcher in (remote, fused):
            assert ranked(searcher.search(QUERIES, k=20, depth=20)) == [*local.values()]
        assert remote.search(["fox"], k=1)[0][0].provenance[0].retriever == f"remote:{url}"
        with pytest.raises(InvalidRequest, match="k is 200"):
            remote.search(["fox"], k=200)
    with pytest.raises(UnknownNameError, match="unknown retriever 'minilm'"):
        open_searcher("made", f"remote:{url}#minilm")


def test_passages_of_another_build_are_found_by_their_texts(url: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local corpus has the passages in another order with other ids, and lacks some."""
    expected = open_searcher("made").search(QUERIES, k=20)
    passages = [Passage(f"x{n}", each.title, each.text.upper()) for n, each in enumerate(reversed(some_passages()[::2]))]
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    build_corpus("made", passages)
    known = {passage.text for passage in passages}
    for ranking, wanted in zip(open_searcher("made", f"remote:{url}").search(QUERIES, k=20, depth=20), expected, strict=True):
        scores = {hit.text.upper(): hit.score for hit in wanted if hit.text.upper() in known}
        assert {hit.text: hit.score for hit in ranking} == scores != {}


def test_a_search_r1_server_is_a_retriever(local: dict[str, Pairs]) -> None:
    """Its ids are not the local ones: texts decide, and the id among equal texts. Some titles have two lines, which become one."""
    asked: list[dict[str, Any]] = []
    passages = {passage.id: passage for passage in some_passages()}

    def retrieve(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        lists = [local[query][: body["topk"]] for query in body["queries"] if query in local]
        return {"result": [[document(passages[name], score, n) for n, (name, score) in enumerate(line)] for line in lists] or [[]]}

    def texts(lists: list[Pairs]) -> list[Pairs]:
        return [[(passages[name].text, score) for name, score in line] for line in lists]

    with faking({"POST /retrieve": retrieve}) as where, open_searcher("made", f"remote:{where}") as searcher:
        assert texts(ranked(searcher.search(QUERIES, k=20, depth=20))) == texts([*local.values()])
        assert asked[-1] == {"queries": QUERIES, "topk": 20, "return_scores": True}
        with pytest.raises(InputError, match="has one retriever: leave out '#e5'"):
            open_searcher("made", f"remote:{where}#e5")


def test_a_routir_server_is_a_retriever(local: dict[str, Pairs]) -> None:
    def search(body: dict[str, Any]) -> dict[str, Any]:
        assert (body["service"], body["limit"]) == ("dense", 20)
        return {"scores": dict(sorted(local[body["query"]])), "cached": False}  # in no order

    with faking(routir(search, ("sparse", "dense"))) as where:
        with open_searcher("made", f"remote:{where}#dense") as searcher:
            found = ranked(searcher.search(QUERIES, k=20, depth=20))
        assert [sorted(line) for line in found] == [sorted(line) for line in local.values()]
        assert all(line == sorted(line, key=lambda hit: -hit[1]) for line in found)
        with pytest.raises(UnknownNameError, match=f"unknown search service of {where} 'dens': did you mean 'dense'"):
            open_searcher("made", f"remote:{where}#dens")


def test_a_server_that_is_missing_or_foreign_is_one_line(made: Path) -> None:
    with pytest.raises(Unreachable, match="http://127.0.0.1:9 cannot be reached"):
        open_searcher("made", "{bm25, remote:http://127.0.0.1:9}rrf")
    with faking({}) as where, pytest.raises(BadAnswer, match=f"{where} answers neither as an idx server nor as RoutIR nor as Search-R1"):
        open_searcher("made", f"remote:{where}")


KNOWN = some_passages()[0]


@pytest.mark.parametrize("score", ["nan", "inf", "-Infinity", 1e39])
@pytest.mark.parametrize("kind", ["RoutIR", "Search-R1"])
def test_scores_that_are_no_finite_numbers_are_refused(kind: str, score: object, made: Path) -> None:
    given: list[object] = [1.0]
    search_r1: Answers = {"POST /retrieve": lambda body: {"result": [[document(KNOWN, given[0])]]}}
    answers = routir(lambda body: {"scores": {KNOWN.id: given[0]}}) if kind == "RoutIR" else search_r1
    with faking(answers) as where, open_searcher("made", f"remote:{where}") as searcher:
        assert len(searcher.search(["fox"])[0]) == 1
        given[0] = score
        with pytest.raises(BadAnswer, match=f"^{where} answered the score (nan|inf|-inf|1e\\+39) for .*: a score is a finite float32$"):
            searcher.search(["fox"])


def test_results_that_are_not_in_the_corpus_are_left_out_with_a_warning_unless_they_are_all(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter([{"scores": {"elsewhere": 2.0, "p7": 1.0}}, {"scores": {"elsewhere": 1.0}}, {"error": "no"}])
    with faking(routir(lambda body: next(results))) as where, open_searcher("made", f"remote:{where}") as searcher:
        assert ranked(searcher.search(["fox"])) == [[("p7", 1.0)]]
        assert "1 of 2 results" in caplog.text
        with pytest.raises(ArtifactMismatch, match=f"none of the 1 results of {where} is in 'made', such as 'elsewhere'"):
            searcher.search(["fox"])
        with pytest.raises(BadAnswer, match=f"{where}/search no longer answers as it did"):
            searcher.search(["fox"])

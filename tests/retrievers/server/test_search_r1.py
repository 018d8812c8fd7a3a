"""``/retrieve`` as Search-R1's and verl's clients use it: their requests, and their parsing of the response."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.retrievers.server.conftest import LIMITS
from tests.retrievers.server.serving import ask, serving
from wikidx.corpora.build import open_store
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.opening import open_retriever, open_searcher
from wikidx.retrievers.server.settings import Settings

QUERIES = ["whale ocean", "fox", "planet metal book"]


def as_search_r1_reads(documents: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Title and text of each document: the first line of its contents, and the others."""
    pairs = []
    for item in documents:
        lines = item["document"]["contents"].split("\n")
        pairs.append((lines[0], "\n".join(lines[1:])))
    return pairs


@pytest.mark.parametrize("n_queries", [1, 2, 3])
def test_what_the_clients_send_is_answered_as_they_read_it(url: str, made: Path, n_queries: int) -> None:
    queries = QUERIES[:n_queries]
    answer = ask(url, "/retrieve", {"queries": queries, "topk": 5, "return_scores": True}, headers={"Accept": "application/json"})
    assert answer.status == 200
    results = answer.json["result"]
    expected = open_searcher("made").search(queries, SearchOptions(k=5))
    assert [as_search_r1_reads(documents) for documents in results] == [
        [('"' + " ".join(hit.passage.title.split("\n")) + '"', hit.passage.text) for hit in ranking] for ranking in expected
    ]
    assert [[item["score"] for item in documents] for documents in results] == [[hit.score for hit in ranking] for ranking in expected]
    assert [[item["document"]["id"] for item in documents] for documents in results] == [
        [hit.passage.id for hit in ranking] for ranking in expected
    ]


@pytest.mark.parametrize("n_queries", [1, 2, 3])
def test_without_scores_documents_come_bare(url: str, n_queries: int) -> None:
    queries = QUERIES[:n_queries]
    with_scores = ask(url, "/retrieve", {"queries": queries, "return_scores": True}).json["result"]
    for asked in ({"queries": queries}, {"queries": queries, "topk": None, "return_scores": False}):
        bare = ask(url, "/retrieve", asked).json
        assert bare == {"result": [[item["document"] for item in documents] for documents in with_scores]}
        assert [len(documents) for documents in bare["result"]] == [3] * n_queries  # Search-R1's default


@pytest.mark.parametrize("path", ["/retrieve", "/retrieve/"])
def test_both_forms_are_exactly_those_of_search_r1_s_server(url: str, made: Path, path: str) -> None:
    (hit,) = open_searcher("made").search(["whale ocean"], SearchOptions(k=1))[0]
    document = {"id": hit.passage.id, "contents": f'"{" ".join(hit.passage.title.splitlines())}"\n{hit.passage.text}'}
    asked = {"queries": ["whale ocean"], "topk": 1}
    assert ask(url, path, asked).json == {"result": [[document]]}
    assert ask(url, path, {**asked, "return_scores": True}).json == {"result": [[{"document": document, "score": hit.score}]]}


def test_fields_that_are_not_known_are_passed_over_and_told(url: str) -> None:
    asked = {"queries": ["fox"], "top_k": 1, "a\r\nb: é": 2, **{"z" * 41 + str(n): 1 for n in range(9)}}
    answer = ask(url, "/retrieve", asked)
    told = r"'a\r\nb: \xe9', 'top_k': did you mean 'topk'?" + f", '{'z' * 40}'" * 3
    assert (answer.status, len(answer.json["result"][0]), answer.headers["idx-ignored"]) == (200, 3, told)
    assert "idx-ignored" not in ask(url, "/retrieve", {"queries": ["fox"], "topk": 1}).headers
    assert len(ask(url, "/retrieve", b'{"queries": ["fox"], "topk": 2.0}').json["result"][0]) == 2  # JSON's 2.0 is an integer


def test_no_queries_and_queries_that_find_nothing(url: str) -> None:
    assert ask(url, "/retrieve", {"queries": []}).json == {"result": []}
    assert ask(url, "/retrieve", {"queries": ["", "zebra", "fox"], "topk": 1, "return_scores": True}).json["result"][:2] == [[], []]


BAD = {
    "1": r"a query contains a lone surrogate, half a character: 'whale \ud800'",
    "3": "a query has 1,001 characters, 1,000 are allowed",
    "4": "a query is a text, or a vector of finite numbers, not None",
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_a_query_that_cannot_be_searched_costs_only_itself(url: str, mark: bytes) -> None:
    queries = ["fox", "whale \ud800", "café", "x" * 1001, None, ""]
    good, bad = ["fox", "", "café", "", "", ""], [query for position, query in enumerate(queries) if str(position) in BAD]
    result = ask(url, "/retrieve", {"queries": good, "topk": 2}).json["result"]
    assert ask(url, "/retrieve", mark + json.dumps({"queries": queries, "topk": 2}).encode()).json == {"result": result, "errors": BAD}
    rankings = ask(url, "/v1/search", {"queries": good, "k": 2}).json["rankings"]
    for fields in ({"queries": queries}, {"groups": [[query] for query in queries]}):
        assert ask(url, "/v1/search", mark + json.dumps({**fields, "k": 2}).encode()).json == {"rankings": rankings, "errors": BAD}
    none = ask(url, "/retrieve", {"queries": bad})
    assert (none.status, none.json) == (200, {"result": [[]] * 3, "errors": dict(zip("012", BAD.values(), strict=True))})
    assert (ask(url, "/v1/search", {"queries": bad}).status, ask(url, "/retrieve", {"queries": [None] * 2001}).status) == (422, 422)


def test_a_client_may_send_one_query_as_skyrl_gym_does(url: str) -> None:
    fields = {"topk": 2, "return_scores": True}
    assert ask(url, "/retrieve", {"query": "fox", **fields}).json == ask(url, "/retrieve", {"queries": ["fox"], **fields}).json
    assert ask(url, "/retrieve", {"query": "x" * 1001}).json == {"result": [[]], "errors": {"0": BAD["3"]}}
    for nothing in ({}, {"query": None}, {"queries": None}):
        answer = ask(url, "/retrieve", nothing)
        assert (answer.status, answer.json["error"]) == (422, "queries is missing")
    assert "unknown field 'query'" in ask(url, "/v1/search", {"query": "fox"}).json["error"]


def test_bm25_with_chosen_k1_and_b_is_served_alone_and_fused(made: Path) -> None:
    build_index("made", "bm25-1.2-0.75", open_store("made"))
    for retriever in ("bm25-1.2-0.75", "bm25+bm25-1.2-0.75"):
        expected = [[hit.passage.id for hit in ranking] for ranking in open_searcher("made", retriever).search(QUERIES, SearchOptions(k=3))]
        with serving(Settings(corpora=("made",), retrievers=(retriever, "bm25"), port=0, limits=LIMITS)) as url:
            searched = ask(url, "/v1/search", {"queries": QUERIES, "k": 3}).json["rankings"]
            retrieved = ask(url, "/retrieve", {"queries": QUERIES, "topk": 3}).json["result"]
            wrong = ask(url, "/v1/search", {"queries": QUERIES, "retriever": "bm25-1.20-0.75"})
        assert [[hit["id"] for hit in ranking] for ranking in searched] == expected
        assert [[document["id"] for document in found] for found in retrieved] == expected
        assert wrong.status == 404
        assert f"did you mean '{retriever}'" in wrong.json["error"]


class Coarse:
    """A retriever that looks at the first rows only, the more of them the deeper it is asked to go, as a quantized index does."""

    parameters: Mapping[str, SearchParam] = {"refine": SearchParam(1, 1)}

    def __init__(self, exact: Retriever) -> None:
        self._exact = exact

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        exact = self._exact.retrieve(queries, 600)
        scores = np.where((exact.rows >= 0) & (exact.rows < 4 * depth), exact.scores, -np.inf)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        scores = np.take_along_axis(scores, best, axis=1)
        return Hits(np.where(scores > -np.inf, np.take_along_axis(exact.rows, best, axis=1), -1), scores)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        return self._exact.rescore(queries, rows)


def test_what_is_found_of_an_approximate_index_is_what_a_search_finds(made: Path) -> None:
    def open_coarse(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        return Coarse(open_retriever(corpus, name, store, device=device))

    with serving(Settings(corpora=("made",), port=0, limits=LIMITS), open_coarse) as url:
        searched = ask(url, "/v1/search", {"queries": QUERIES, "k": 3}).json["rankings"]
        retrieved = ask(url, "/retrieve", {"queries": QUERIES, "topk": 3}).json["result"]
    assert [[hit["id"] for hit in ranking] for ranking in searched] == [[document["id"] for document in found] for found in retrieved]
    assert max(hit["row"] for ranking in searched for hit in ranking) >= 12

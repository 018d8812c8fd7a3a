"""``/retrieve`` as Search-R1's, verl's and SkyRL's clients use it; that it finds what a search finds is part of the contract of clients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.conftest import LIMITS
from tests.retrievers.retrieving import Forwarding, opener_of
from tests.retrievers.server.serving import ask, retrieve, search, serving
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParam, SearchParams
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.server.settings import Settings

QUERIES = ["whale ocean", "fox", "planet metal book"]


def test_three_documents_are_the_default(url: str) -> None:
    three = retrieve(url, queries=QUERIES, topk=3).json
    for asked in ({"queries": QUERIES}, {"queries": QUERIES, "topk": None, "return_scores": False}):
        assert ask(url, "/retrieve", asked).json == three
    assert [len(documents) for documents in three["result"]] == [3, 3, 3]


def test_fields_that_are_not_known_are_passed_over_and_told(url: str) -> None:
    asked = {"queries": ["fox"], "top_k": 1, "a\r\nb: é": 2, **{"z" * 41 + str(n): 1 for n in range(9)}}
    answer = ask(url, "/retrieve", asked)
    told = r"'a\r\nb: \xe9', 'top_k': did you mean 'topk'?" + f", '{'z' * 40}'" * 3
    assert (answer.status, len(answer.json["result"][0]), answer.headers["idx-ignored"]) == (200, 3, told)
    assert "idx-ignored" not in retrieve(url, queries=["fox"], topk=1).headers
    assert len(ask(url, "/retrieve", b'{"queries": ["fox"], "topk": 2.0}').json["result"][0]) == 2  # JSON's 2.0 is an integer
    given = ask(url, "/retrieve", {"queries": ["fox"], "topk": "2", "return_scores": "true"}).json  # read as by Search-R1's server
    assert given == {"result": retrieve(url, queries=["fox"], topk=2, return_scores=True).json["result"]}


def test_no_queries_and_queries_that_find_nothing(url: str) -> None:
    assert retrieve(url, queries=[]).json == {"result": []}
    assert retrieve(url, queries=["", "zebra", "fox"], topk=1, return_scores=True).json["result"][:2] == [[], []]


BAD = {
    "1": r"a query contains a lone surrogate, half a character: 'whale \ud800'",
    "3": "a query has 1,001 characters, 1,000 are allowed",
    "4": "a query is a text, or a vector of finite numbers, not None",
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_a_query_that_cannot_be_searched_costs_only_itself(url: str, mark: bytes) -> None:
    queries = ["fox", "whale \ud800", "café", "x" * 1001, None, ""]
    good, bad = ["fox", "", "café", "", "", ""], [query for position, query in enumerate(queries) if str(position) in BAD]
    result = retrieve(url, queries=good, topk=2).json["result"]
    assert ask(url, "/retrieve", mark + json.dumps({"queries": queries, "topk": 2}).encode()).json == {"result": result, "errors": BAD}
    rankings = search(url, queries=good, k=2).json["rankings"]
    for fields in ({"queries": queries}, {"groups": [[query] for query in queries]}):
        assert ask(url, "/v1/search", mark + json.dumps({**fields, "k": 2}).encode()).json == {"rankings": rankings, "errors": BAD}
    none = retrieve(url, queries=bad)
    assert (none.status, none.json) == (200, {"result": [[]] * 3, "errors": dict(zip("012", BAD.values(), strict=True))})
    assert search(url, queries=bad).status == 422


def test_a_client_may_send_one_query_as_skyrl_gym_does(url: str) -> None:
    fields = {"topk": 2, "return_scores": True}
    assert retrieve(url, query="fox", **fields).json == retrieve(url, queries=["fox"], **fields).json
    assert retrieve(url, query="x" * 1001).json == {"result": [[]], "errors": {"0": BAD["3"]}}


class Coarse(Forwarding):
    """A retriever that looks at the first rows only, the more of them the deeper it is asked to go, as a quantized index does."""

    def __init__(self, retriever: Retriever) -> None:
        super().__init__(retriever)
        self.parameters = {"refine": SearchParam(1, 1)}

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        exact = super().retrieve(queries, 600)
        scores = np.where((exact.rows >= 0) & (exact.rows < 4 * depth), exact.scores, -np.inf)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        scores = np.take_along_axis(scores, best, axis=1)
        return Hits(np.where(scores > -np.inf, np.take_along_axis(exact.rows, best, axis=1), -1), scores)


@pytest.mark.parametrize("retriever", ["bm25", "bm25+bm25-1.2-0.75"])
def test_what_is_found_of_an_approximate_index_is_what_a_search_finds(made: Path, retriever: str) -> None:
    settings = Settings(corpora=("made",), retrievers=(retriever,), port=0, limits=LIMITS)
    with serving(settings, opener_of(Coarse)) as url:
        searched = search(url, queries=QUERIES, k=3).json["rankings"]
        retrieved = retrieve(url, queries=QUERIES, topk=3).json["result"]
    assert [[hit["id"] for hit in ranking] for ranking in searched] == [[document["id"] for document in found] for found in retrieved]
    assert max(hit["row"] for ranking in searched for hit in ranking) >= 12

"""The forms that results take for users: records, data frames, TREC runs, text and HTML; and searchers as objects."""

from __future__ import annotations

import copy
import math
import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from typing import Any, get_type_hints

import numpy as np
import pytest

import wikidx as idx
from wikidx.base.errors import ArgumentError, ClosedError, InputError, MissingExtraError
from wikidx.retrievers.base import Match, Rankings
from wikidx.retrievers.options import SearchOptionValues
from wikidx.retrievers.wire import ranking_from_json

PASSAGES = [
    {"id": "a", "title": "Fox", "text": "The red fox."},
    {"id": "b", "title": "Whale & <co>", "text": "The blue whale."},
    {"id": "c d", "title": "", "text": "A blue fox"},
]


@pytest.fixture
def searcher() -> Iterator[idx.LocalSearcher]:
    with idx.build(PASSAGES, name="made") as searcher:
        yield searcher


@pytest.fixture
def rankings(searcher: idx.LocalSearcher) -> Rankings:
    return searcher.search_groups([["red fox", "fox"], ["whale"], ["zebra"]], k=1)


def test_a_searcher_says_what_it_searches(searcher: idx.LocalSearcher) -> None:
    assert repr(searcher) == "<LocalSearcher of 'made': 3 passages, bm25>"
    assert len(searcher) == 3
    assert searcher
    searcher.close()
    assert repr(searcher) == "<LocalSearcher of 'made': 3 passages, closed>"
    uses: list[Any] = [searcher.passages, searcher.search, searcher.search_groups]
    for use in uses:
        with pytest.raises(ClosedError, match="the searcher is closed"):
            use(["a"])


def test_a_hit_has_the_fields_of_its_passage_and_parts_of_rankings_are_rankings(rankings: Rankings) -> None:
    hit = rankings[1][0]
    assert (hit.id, hit.title, hit.text) == tuple(hit.passage)
    assert hit.provenance == (Match("whale", "bm25", 1, hit.score),)
    assert isinstance(rankings[:2], Rankings)
    assert rankings[:2].to_dict()["rankings"] == rankings.to_dict()["rankings"][:2]
    assert (rankings[0][:1].queries, rankings[0][:1].to_dict()) == (("red fox", "fox"), rankings[0].to_dict())
    assert (rankings[0][:0].to_dict(), rankings[0][0].id) == ({"queries": ["red fox", "fox"], "passages": []}, "a")


def test_the_names_and_types_of_options_that_are_given_singly_are_those_of_the_options() -> None:
    def plain(kind: type) -> dict[str, str]:
        return {name: str(hint).replace("typing.", "") for name, hint in get_type_hints(kind).items()}

    assert plain(SearchOptionValues) == plain(idx.SearchOptions)


def test_rankings_know_their_queries_also_when_pickled(rankings: Rankings) -> None:
    for each in (rankings, pickle.loads(pickle.dumps(rankings))):
        assert [ranking.queries for ranking in each] == [("red fox", "fox"), ("whale",), ("zebra",)]
        assert isinstance(each, Rankings)


def test_ids_and_scores_are_arrays_as_long_as_the_longest_ranking(searcher: idx.LocalSearcher) -> None:
    rankings = searcher.search(["blue fox", "zebra", "whale"])
    assert rankings.ids.tolist() == [["c d", "a", "b"], [None] * 3, ["b", None, None]]
    expected = [[hit.score for hit in ranking] + [math.nan] * (3 - len(ranking)) for ranking in rankings]
    np.testing.assert_array_equal(rankings.scores, np.array(expected, dtype=np.float32), strict=True)
    np.testing.assert_array_equal(rankings[0].scores, np.array(expected[0], dtype=np.float32), strict=True)
    assert rankings[0].ids == ["c d", "a", "b"]
    assert (searcher.search([]).scores.shape, searcher.search(["zebra"]).ids.shape) == ((0, 0), (1, 0))


def _scores(searcher: idx.LocalSearcher) -> list[float]:
    return [hit.score for hit in searcher.search(["blue fox"])[0]]


def test_searchers_go_to_other_processes(searcher: idx.LocalSearcher) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_scores, [searcher]) == [_scores(searcher)]
    again = copy.deepcopy(searcher)
    assert (repr(again), _scores(again)) == (repr(searcher), _scores(searcher))


def test_a_searcher_that_cannot_be_opened_again_says_so(searcher: idx.LocalSearcher) -> None:
    searcher.close()
    for lost in (searcher, idx.build(["a text"])):
        with pytest.raises(TypeError, match="can be neither pickled nor copied: open it again, or give its corpus a name"):
            pickle.dumps(lost)


def test_records(rankings: Rankings) -> None:
    record = rankings[1].to_dict()
    (passage,) = record["passages"]
    assert record["queries"] == ["whale"]
    assert (passage["rank"], passage["id"], passage["title"]) == (1, "b", "Whale & <co>")
    assert ranking_from_json(record["passages"]) == rankings[1]
    assert rankings.to_dict() == {"rankings": [ranking.to_dict() for ranking in rankings]}


def test_a_trec_run(searcher: idx.LocalSearcher, rankings: Rankings) -> None:
    scores = [ranking[0].score for ranking in rankings[:2]]
    assert rankings.to_trec() == f"0 Q0 a 1 {scores[0]!r} idx\n1 Q0 b 1 {scores[1]!r} idx\n"
    assert rankings.to_trec(["q1", "q2", "q3"], tag="mine").splitlines()[1] == f"q2 Q0 b 1 {scores[1]!r} mine"
    assert rankings.to_trec(np.array([301, 302, 303])).splitlines()[1].startswith("302 Q0 b 1 ")  # type: ignore[arg-type]
    with_blanks = searcher.search(["blue fox"])  # tabs separate the columns
    assert [line.split("\t")[:3] for line in with_blanks.to_trec().splitlines()] == [["0", "Q0", id] for id in ("c d", "a", "b")]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"query_ids": ["1"]}, ArgumentError, "1 query ids for 3 rankings"),
        ({"query_ids": ["1", "1", "2"]}, ArgumentError, "the same query id"),
        ({"tag": "my\ttag"}, InputError, r"'my\\ttag' cannot be written to a TREC file"),
    ],
)
def test_names_that_do_not_fit_a_run_are_refused(rankings: Rankings, values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rankings.to_trec(**values)


def test_a_data_frame(rankings: Rankings) -> None:
    pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    frame = rankings.to_pandas()
    assert list(frame.columns) == ["query_id", "query", "rank", "score", "id", "title", "text"]
    assert frame[["query_id", "query", "rank", "id"]].to_numpy().tolist() == [["0", "red fox | fox", 1, "a"], ["1", "whale", 1, "b"]]
    assert rankings.to_pandas(["x", 2, "z"])["query_id"].tolist() == ["x", "2"]  # type: ignore[list-item]
    assert list(rankings[2].to_pandas().columns) == ["query", "rank", "score", "id", "title", "text"]


def test_without_pandas_the_extra_is_named(rankings: Rankings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="a data frame needs the extra 'pandas': pip install"):
        rankings.to_pandas()


def test_text_and_html_which_is_escaped(rankings: Rankings) -> None:
    score = rankings[1][0].score
    assert repr(rankings[1]) == f"whale\n  1  {score:.4f}  [b]  Whale & <co>: The blue whale."
    assert repr(rankings[2]) == "zebra\n     no passage found"
    assert repr(rankings) == "\n\n".join(map(repr, rankings))
    table = rankings._repr_html_()
    assert table.count("<table>") == 3
    assert "<td>b</td><td>Whale &amp; &lt;co&gt;</td><td>The blue whale.</td>" in table
    assert "<caption>red fox | fox</caption>" in table

"""The forms that results take for users: records, data frames, TREC runs, text and HTML; and searchers as objects."""

from __future__ import annotations

import copy
import math
import multiprocessing
import pickle
import sys
from collections.abc import Iterator
from typing import get_type_hints

import numpy as np
import pytest

import wikidx as idx
from wikidx.base.errors import IdxError, InputError, MissingExtraError, OptionError, UnknownNameError
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
    for use in (searcher.passage, searcher.search, searcher.search_groups):
        with pytest.raises(IdxError, match="the searcher is closed") as raised:
            use(["a"])  # type: ignore[arg-type]
        assert isinstance(raised.value, ValueError)


def test_passages_are_read_by_id(searcher: idx.LocalSearcher) -> None:
    assert searcher.passage("a") == idx.Passage("a", "Fox", "The red fox.")
    assert [passage.id for passage in searcher.passages(["c d", "a", "c d"])] == ["c d", "a", "c d"]
    with pytest.raises(UnknownNameError, match="no passage of 'made' has the id 'z'"):
        searcher.passages(["a", "z"])
    for ids in ([0], "a"):
        with pytest.raises(TypeError, match="ids of passages are texts, in a list"):
            searcher.passages(ids)  # type: ignore[arg-type]


def test_parts_of_rankings_are_rankings(rankings: Rankings) -> None:
    assert isinstance(rankings[:2], Rankings)
    assert rankings[:2].to_dict()["rankings"] == rankings.to_dict()["rankings"][:2]
    assert (rankings[0][:1].queries, rankings[0][:1].to_dict()) == (("red fox", "fox"), rankings[0].to_dict())
    assert (rankings[0][:0].to_dict(), rankings[0][0].id) == ({"queries": ["red fox", "fox"], "passages": []}, "a")


def test_options_are_given_by_their_names(searcher: idx.LocalSearcher) -> None:
    options = idx.SearchOptions(k=1, dedup="text")
    assert [len(ranking) for ranking in searcher.search(["blue fox", "red"], options)] == [1, 1]
    assert [len(ranking) for ranking in searcher.search(["blue fox", "red"], options, k=2)] == [2, 1]
    assert [hit.id for hit in searcher.search_groups([["red", "whale"]], merge="interleave")[0]] == ["a", "b"]


def test_the_names_and_types_are_those_of_the_options() -> None:
    def plain(kind: type) -> dict[str, str]:
        return {name: str(hint).replace("typing.", "") for name, hint in get_type_hints(kind).items()}

    assert plain(SearchOptionValues) == plain(idx.SearchOptions)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"kk": 3}, OptionError, "unknown field 'kk': did you mean 'k'?"),
        ({"fuse": "rff"}, OptionError, "fuse is 'rff': did you mean 'rrf'?"),
        ({"merge": "rrf"}, TypeError, r"search ranks each query by itself, merge is for search_groups"),
    ],
)
def test_a_wrong_option_is_named(searcher: idx.LocalSearcher, values: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        searcher.search(["fox"], **values)  # type: ignore[arg-type]


def test_a_hit_has_the_fields_of_its_passage(rankings: Rankings) -> None:
    hit = rankings[1][0]
    assert (hit.id, hit.title, hit.text) == tuple(hit.passage)
    assert hit.provenance == (Match("whale", "bm25", 1, hit.score),)


def test_rankings_know_their_queries_also_when_pickled(rankings: Rankings) -> None:
    expected = [("red fox", "fox"), ("whale",), ("zebra",)]
    for each in (rankings, pickle.loads(pickle.dumps(rankings))):
        assert [ranking.queries for ranking in each] == expected
        assert isinstance(each, Rankings)


def test_ids_and_scores_are_arrays_as_long_as_the_longest_ranking(searcher: idx.LocalSearcher) -> None:
    rankings = searcher.search(["blue fox", "zebra", "whale"])
    assert rankings.ids.tolist() == [["c d", "a", "b"], [None] * 3, ["b", None, None]]
    expected = [[hit.score for hit in ranking] + [math.nan] * (3 - len(ranking)) for ranking in rankings]
    np.testing.assert_array_equal(rankings.scores, np.array(expected, dtype=np.float32), strict=True)
    assert (rankings[0].ids, rankings[0].scores.tolist()) == (["c d", "a", "b"], expected[0])
    assert (str(rankings[0].scores.dtype), searcher.search([]).scores.shape, searcher.search(["zebra"]).ids.shape) == (
        "float32",
        (0, 0),
        (1, 0),
    )


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


@pytest.mark.parametrize("kind", [idx.RemoteSearcher, idx.AsyncRemoteSearcher])
def test_a_remote_searcher_goes_with_its_key(kind: type[idx.RemoteSearcher]) -> None:
    remote = kind("http://127.0.0.1:9", corpus="made", retriever="bm25", api_key="key", timeout=3)
    again = pickle.loads(pickle.dumps(remote))
    assert repr(again) == repr(remote) != repr(kind("http://127.0.0.1:9"))
    assert again.reopen.keywords == remote.reopen.keywords  # type: ignore[union-attr]


def test_records(rankings: Rankings) -> None:
    record = rankings[1].to_dict()
    (passage,) = record["passages"]
    assert record["queries"] == ["whale"]
    assert (passage["rank"], passage["id"], passage["title"]) == (1, "b", "Whale & <co>")
    assert ranking_from_json(record["passages"]) == rankings[1]
    assert rankings.to_dict() == {"rankings": [ranking.to_dict() for ranking in rankings]}


def test_a_trec_run(rankings: Rankings) -> None:
    scores = [ranking[0].score for ranking in rankings[:2]]
    assert rankings.to_trec() == f"0 Q0 a 1 {scores[0]!r} idx\n1 Q0 b 1 {scores[1]!r} idx\n"
    assert rankings.to_trec(["q1", "q2", "q3"], tag="mine").splitlines()[1].startswith("q2 Q0 b 1 ")
    assert rankings.to_trec(np.array([301, 302, 303])).splitlines()[1].startswith("302 Q0 b 1 ")  # type: ignore[arg-type]
    assert rankings.to_trec(["q1", "q2", "q3"], tag="mine").endswith(" mine\n")


@pytest.mark.parametrize(("ids", "message"), [(["1"], "1 query ids for 3 rankings"), (["1", "1", "2"], "the same query id")])
def test_query_ids_that_do_not_fit_are_refused(rankings: Rankings, ids: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rankings.to_trec(ids)


def test_tabs_separate_the_columns_of_names_with_blanks(searcher: idx.LocalSearcher) -> None:
    found = searcher.search(["blue fox"])
    assert [line.split("\t")[:3] for line in found.to_trec().splitlines()] == [["0", "Q0", hit.id] for hit in found[0]]
    assert "c d" in [hit.id for hit in found[0]]
    with pytest.raises(InputError, match=r"'my\\ttag' cannot be written to a TREC file"):
        found.to_trec(tag="my\ttag")


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


def test_text(rankings: Rankings) -> None:
    score = rankings[1][0].score
    assert repr(rankings[1]) == f"whale\n  1  {score:.4f}  [b]  Whale & <co>: The blue whale."
    assert repr(rankings[2]) == "zebra\n     no passage found"
    assert repr(rankings) == "\n\n".join(map(repr, rankings))


def test_html_is_escaped(rankings: Rankings) -> None:
    table = rankings._repr_html_()
    assert table.count("<table>") == 3
    assert "<td>b</td><td>Whale &amp; &lt;co&gt;</td><td>The blue whale.</td>" in table
    assert "<caption>red fox | fox</caption>" in table

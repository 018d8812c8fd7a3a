from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from wikidx.base.errors import ArtifactCorrupt, IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Match, Ranking
from wikidx.retrievers.opening import open_retriever
from wikidx.retrievers.searcher import LocalSearcher

TEXTS = [
    "The red fox jumps over the dog.",
    "A blue whale sings in the ocean.",
    "THE RED FOX  jumps over the dog.",
    "The ocean is deep and blue, deeper than the red sea.",
    "Foxes live in dens.",
    "Nothing to see here.",
]


class FakeRetriever:
    """A retriever that finds, for a query of digits, those rows in that order, and records its calls."""

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.depths: list[int] = []

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        raise AssertionError("nobody asked for it")

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        self.asked.append(list(queries))
        self.depths.append(depth)
        rows = np.full((len(queries), depth), -1, dtype=np.int64)
        scores = np.full((len(queries), depth), -np.inf, dtype=np.float32)
        for line, query in enumerate(queries):
            for rank, digit in enumerate(query[:depth]):
                rows[line, rank], scores[line, rank] = int(digit), 10 - rank
        return Hits(rows, scores)


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage(f"p{n}", f"T{n}", text) for n, text in enumerate(TEXTS)])


def rows(ranking: Ranking) -> list[int]:
    return [hit.row for hit in ranking]


def test_every_first_stage_gets_one_batch_of_distinct_queries(store: PassageStore) -> None:
    one, two = FakeRetriever(), FakeRetriever()
    LocalSearcher(store, {"one": one, "two": two}).search_groups([["01", "2"], ["2"], ["01", "3", "3"]], SearchOptions(k=2, depth=5))
    assert one.asked == two.asked == [["01", "2", "3"]]
    assert one.depths == [5]


def test_depth_is_never_below_k_nor_beyond_the_store(store: PassageStore) -> None:
    retriever = FakeRetriever()
    searcher = LocalSearcher(store, {"one": retriever})
    searcher.search(["0"], SearchOptions(k=4, depth=2))
    searcher.search(["0"], SearchOptions(k=10**12, depth=10**12))
    assert retriever.depths == [4, len(TEXTS)]


def test_half_of_a_surrogate_pair_is_refused(store: PassageStore) -> None:
    with pytest.raises(ValueError, match=r"a query contains a lone surrogate, half a character: '0\\ud800'"):
        LocalSearcher(store, {"one": FakeRetriever()}).search(["0\ud800"])


def test_one_retriever_and_one_query_keep_their_scores(store: PassageStore) -> None:
    (ranking,) = LocalSearcher(store, {"one": FakeRetriever()}).search(["314"])
    assert [(hit.row, hit.score, hit.passage.id) for hit in ranking] == [(3, 10.0, "p3"), (1, 9.0, "p1"), (4, 8.0, "p4")]


def test_queries_alone_have_the_rankings_that_merging_gives(store: PassageStore) -> None:
    """A group of two queries makes the search merge, also the groups of one query beside it."""
    retriever = FakeRetriever()
    searcher, queries = LocalSearcher(store, {"one": retriever}), ["314", "", "20", "314", "5"]
    alone = searcher.search(queries, SearchOptions(k=2))
    merged = searcher.search_groups([*([query] for query in queries), ["1", "2"]], SearchOptions(k=2))[:-1]
    assert alone == merged
    assert [ranking.queries for ranking in alone] == [ranking.queries for ranking in merged]
    assert [len(ranking) for ranking in alone] == [2, 0, 2, 2, 1]
    assert retriever.depths == [2, len(TEXTS)]


def test_an_approximate_search_keeps_its_depth(store: PassageStore) -> None:
    class FakeApproximate(FakeRetriever):
        parameters: Mapping[str, SearchParam] = {"nprobe": SearchParam(1, 2)}

    retriever = FakeApproximate()
    (ranking,) = LocalSearcher(store, {"one": retriever}).search(["314"], SearchOptions(k=2, depth=3))
    assert (rows(ranking), retriever.depths) == ([3, 1], [3])


def test_a_group_is_merged_by_its_best_scores(store: PassageStore) -> None:
    (ranking,) = LocalSearcher(store, {"one": FakeRetriever()}).search_groups([["01", "21"]])
    assert [(hit.row, hit.score) for hit in ranking] == [(0, 10.0), (2, 10.0), (1, 9.0)]


def test_a_group_is_merged_by_reciprocal_ranks(store: PassageStore) -> None:
    (ranking,) = LocalSearcher(store, {"one": FakeRetriever()}).search_groups([["01", "21"]], SearchOptions(merge="rrf"))
    assert rows(ranking) == [1, 0, 2]
    assert [hit.score for hit in ranking] == pytest.approx([2 / 62, 1 / 61, 1 / 61])


def test_several_retrievers_are_fused_before_queries_are_merged(store: PassageStore) -> None:
    class FakeReversed(FakeRetriever):
        def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
            return super().retrieve([query[::-1] for query in queries], depth)

    (ranking,) = LocalSearcher(store, {"one": FakeRetriever(), "two": FakeReversed()}).search_groups([["01", "4"]])
    both = 1 / 61 + 1 / 62
    assert rows(ranking) == [4, 0, 1]
    assert [hit.score for hit in ranking] == pytest.approx([2 / 61, both, both])


def test_each_passage_says_how_it_was_found(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"one": FakeRetriever(), "two": FakeRetriever()})
    (ranking,) = searcher.search_groups([["01", "1"]], SearchOptions(k=2))
    assert ranking[1].row == 1
    assert ranking[1].provenance == (
        Match("01", "one", 2, 9.0),
        Match("01", "two", 2, 9.0),
        Match("1", "one", 1, 10.0),
        Match("1", "two", 1, 10.0),
    )


def test_equal_texts_count_once_when_asked_for(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"one": FakeRetriever()})
    assert rows(searcher.search(["2013"])[0]) == [2, 0, 1, 3]
    assert rows(searcher.search(["2013"], SearchOptions(dedup="text"))[0]) == [2, 1, 3]
    assert rows(searcher.search(["2013"], SearchOptions(dedup="text", k=2))[0]) == [2, 1]


def test_no_hits_give_an_empty_ranking(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"one": FakeRetriever()})
    assert searcher.search(["", "5", ""])[0::2] == [[], []]
    assert searcher.search_groups([["", ""]]) == [[]]
    assert searcher.search([]) == []


def test_strings_in_place_of_lists_are_refused(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"one": FakeRetriever()})
    with pytest.raises(TypeError, match="queries is one string"):
        searcher.search("01")
    with pytest.raises(TypeError, match="a group is a list of queries, not '0'"):
        searcher.search_groups(["0", "1"])


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_errors(store: PassageStore, score: float) -> None:
    class Broken(FakeRetriever):
        def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
            hits = super().retrieve(queries, depth)
            hits.scores[0, 0] = score
            return hits

    with pytest.raises(IdxError, match="a search gave query 0 a score that is not a finite number"):
        LocalSearcher(store, {"one": Broken()}).search(["01"])


def test_an_error_of_one_first_stage_is_the_searchs(store: PassageStore) -> None:
    class Failing(FakeRetriever):
        def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
            raise ArtifactCorrupt("the index is corrupt")

    with pytest.raises(ArtifactCorrupt, match="the index is corrupt"):
        LocalSearcher(store, {"one": FakeRetriever(), "two": Failing()}).search(["01"])


def test_the_passages_of_all_groups_are_fetched_once(store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[list[int]] = []
    get_many = store.get_many

    def recording(rows: Rows) -> list[Passage]:
        fetched.append(rows.tolist())
        return get_many(rows)

    monkeypatch.setattr(store, "get_many", recording)
    LocalSearcher(store, {"one": FakeRetriever()}).search_groups([["01", "2"], ["2"], ["15", "0"]])
    assert fetched == [[0, 1, 2, 5]]


def plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def test_groups_over_bm25_equal_a_plain_python_search(store: PassageStore) -> None:
    """The whole order, retrieve, merge, dedup, cut, once more over lists and dictionaries."""
    build_index("made", "bm25", store)
    retriever = open_retriever("made", "bm25", store)
    groups = [["red fox", "blue ocean"], ["whale", "deep sea", "fox"], ["nothing like this"]]
    rankings = LocalSearcher(store, {"bm25": retriever}).search_groups(groups, SearchOptions(k=3, dedup="text"))
    for group, ranking in zip(groups, rankings, strict=True):
        best: dict[int, float] = {}
        for query in group:
            found = retriever.retrieve([query], 100)
            for row, score in zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True):
                if row >= 0:
                    best[row] = max(best.get(row, 0.0), score)
        expected: list[tuple[int, float]] = []
        seen: set[str] = set()
        for row, score in sorted(best.items(), key=lambda pair: (-pair[1], pair[0])):
            if plain(TEXTS[row]) not in seen:
                seen.add(plain(TEXTS[row]))
                expected.append((row, score))
        assert [(hit.row, hit.score) for hit in ranking] == expected[:3]


def test_blank_queries_find_nothing_in_a_dense_index(store: PassageStore) -> None:
    build_index("made", "minilm", store)
    searcher = LocalSearcher(store, {"minilm": open_retriever("made", "minilm", store)})
    blank, asked = searcher.search(["  ", "animals that dig burrows"], SearchOptions(k=2))
    assert blank == []
    assert asked[0].row == 4

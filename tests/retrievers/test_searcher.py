"""The path from queries to passages over retrievers of known results; what searchers share is in ``contracts/test_client``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.retrievers.retrieving import ByDigits
from tests.retrievers.worded import WordEncoder, dense_over
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage, Rows
from wikidx.corpora.store import PassageStore
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Match
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.searcher import LocalSearcher

TEXTS = [
    "The red fox jumps over the dog.",
    "A blue whale sings in the ocean.",
    "THE RED FOX  jumps over the dog.",
    "The ocean is deep and blue, deeper than the red sea.",
    "Foxes live in dens.",
    "Nothing to see here.",
]


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage(f"p{n}", f"T{n}", text) for n, text in enumerate(TEXTS)])


def test_every_first_stage_gets_one_batch_of_distinct_queries(store: PassageStore) -> None:
    one, two = ByDigits(), ByDigits()
    LocalSearcher(store, {"one": one, "two": two}).search_groups([["01", "2"], ["2"], ["01", "3", "3"]], SearchOptions(k=2, depth=5))
    assert one.asked == two.asked == [["01", "2", "3"]]
    assert one.depths == [5]


@pytest.mark.parametrize(
    ("parameters", "options", "depth"),
    [
        ((), SearchOptions(k=4, depth=2), 4),
        ((), SearchOptions(k=10**12, depth=10**12), len(TEXTS)),
        ((), SearchOptions(k=2, depth=3), 2),
        (("nprobe",), SearchOptions(k=2, depth=3), 3),
    ],
    ids=["never below k", "nor beyond the store", "an exact search stops at k", "an approximate one keeps its depth"],
)
def test_the_depth_of_a_query_alone(store: PassageStore, parameters: tuple[str, ...], options: SearchOptions, depth: int) -> None:
    retriever = ByDigits(*parameters)
    (ranking,) = LocalSearcher(store, {"one": retriever}).search(["31"], options)
    assert ([hit.row for hit in ranking], retriever.depths) == ([3, 1], [depth])


def test_each_passage_says_how_it_was_found(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"one": ByDigits(), "two": ByDigits()})
    (ranking,) = searcher.search_groups([["01", "1"]], SearchOptions(k=2))
    expected = [("01", "one", 2, 9.0), ("01", "two", 2, 9.0), ("1", "one", 1, 10.0), ("1", "two", 1, 10.0)]
    assert (ranking[1].row, ranking[1].provenance) == (1, tuple(Match(*found) for found in expected))


def test_the_passages_of_all_groups_are_fetched_once(store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[list[int]] = []
    get_many = store.get_many

    def recording(rows: Rows) -> list[Passage]:
        fetched.append(rows.tolist())
        return get_many(rows)

    monkeypatch.setattr(store, "get_many", recording)
    LocalSearcher(store, {"one": ByDigits()}).search_groups([["01", "2"], ["2"], ["15", "0"]])
    assert fetched == [[0, 1, 2, 5]]


def test_each_request_s_parameters_reach_all_retrievers(store: PassageStore) -> None:
    retrievers = {"ivf": ByDigits("nprobe", "refine"), "hnsw": ByDigits("ef_search"), "bm25": ByDigits()}
    searcher = LocalSearcher(store, retrievers)
    searcher.search(["0"], SearchOptions(k=1))
    searcher.search(["0"], SearchOptions(k=1, nprobe=3, ef_search=7, refine=0))
    for retriever in retrievers.values():
        assert [params.overrides() for params in retriever.params] == [{}, {"nprobe": 3, "ef_search": 7, "refine": 0}]


@pytest.mark.parametrize(
    ("retrievers", "message"),
    [
        ({"ivf": ("nprobe", "refine"), "exact": ()}, "of 'ivf' or 'exact': 'ivf' has nprobe, refine; 'exact' has none$"),
        ({"bm25": ()}, "of 'bm25': 'bm25' has none$"),
    ],
)
def test_a_parameter_that_no_retriever_has_is_refused(store: PassageStore, retrievers: dict[str, tuple[str, ...]], message: str) -> None:
    searcher = LocalSearcher(store, {name: ByDigits(*parameters) for name, parameters in retrievers.items()})
    with pytest.raises(InputError, match="ef_search is no parameter " + message):
        searcher.search(["0"], SearchOptions(ef_search=3))


def test_candidates_are_not_scored_again_without_the_vectors(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"dense": DenseRetriever(WordEncoder(), dense_over(store)._index)})
    with pytest.raises(InputError, match="rerank is 'primary', but the vectors that the index was made of are not there"):
        searcher.search_groups([["red", "blue"]], SearchOptions(k=1, rerank="primary"))

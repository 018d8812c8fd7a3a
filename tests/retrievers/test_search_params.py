"""Search parameters on their way from a request to the index that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from wikidx.base.errors import InputError
from wikidx.base.machine.fit import ON_CPU
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, Vectors
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher


class Plain:
    """A retriever, or an index, that has no parameters."""

    parameters: Mapping[str, SearchParam] = {}

    dim = 2
    placement = ON_CPU

    def __len__(self) -> int:
        return 3

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        return self.search(np.zeros((len(queries), 2), dtype=np.float32), depth)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        raise NotImplementedError

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        return Hits(np.zeros((len(vectors), k), dtype=np.int64), np.ones((len(vectors), k), dtype=np.float32))


class Approximate(Plain):
    """An index that records the parameters of its searches."""

    def __init__(self, *names: str) -> None:
        self.parameters = {name: SearchParam(1, 10) for name in names}
        self.given: list[dict[str, int]] = []

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        self.given.append(params.overrides())
        return super().search(vectors, k)


class Encoder:
    dim = 2

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return np.zeros((len(queries), 2), dtype=np.float32)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        return np.zeros((len(passages), 2), dtype=np.float32)


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage(str(n), "", str(n)) for n in range(3)])


def test_each_request_s_parameters_reach_the_indexes(store: PassageStore) -> None:
    ivf, hnsw = Approximate("nprobe", "refine"), Approximate("ef_search")
    retrievers: dict[str, Retriever] = {
        "ivf": DenseRetriever(Encoder(), ivf),
        "hnsw": DenseRetriever(Encoder(), hnsw),
        "exact": DenseRetriever(Encoder(), Plain()),
        "bm25": Plain(),
    }
    searcher = LocalSearcher(store, retrievers)
    searcher.search(["a"], SearchOptions(k=1))
    searcher.search(["a"], SearchOptions(k=1, nprobe=3, ef_search=7, refine=0))
    assert ivf.given == hnsw.given == [{}, {"nprobe": 3, "ef_search": 7, "refine": 0}]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ivf", "exact"], "ef_search is no parameter of 'ivf' or 'exact': 'ivf' has nprobe, refine; 'exact' has none"),
        (["bm25"], "ef_search is no parameter of 'bm25': 'bm25' has none$"),
    ],
)
def test_a_parameter_that_no_retriever_has_is_refused(store: PassageStore, names: list[str], message: str) -> None:
    known: dict[str, Retriever] = {
        "ivf": DenseRetriever(Encoder(), Approximate("nprobe", "refine")),
        "exact": DenseRetriever(Encoder(), Plain()),
        "bm25": Plain(),
    }
    searcher = LocalSearcher(store, {name: known[name] for name in names})
    with pytest.raises(InputError, match=message):
        searcher.search(["a"], SearchOptions(ef_search=3))


def test_parameters_below_their_range_are_refused() -> None:
    with pytest.raises(InputError, match="nprobe is 0: it should be greater than or equal to 1"):
        SearchOptions(nprobe=0)


def test_candidates_are_not_scored_again_without_the_vectors(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"ivf": DenseRetriever(Encoder(), Approximate("nprobe"))})
    with pytest.raises(InputError, match="rerank is 'primary', but the vectors that the index was made of are not there"):
        searcher.search_groups([["a", "b"]], SearchOptions(k=1, rerank="primary"))

"""Scores of given rows are those of a search that finds every row it can."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.retrievers.worded import dense_over
from wikidx.base.errors import ArtifactCorrupt
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis.english import ANALYZER
from wikidx.indexer.build import build_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.bm25 import BM25Index
from wikidx.indexer.indexes.bm25.files import DTYPES
from wikidx.indexer.indexes.postings.files import IndexFiles
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.bm25 import BM25Retriever
from wikidx.retrievers.opening import open_retriever

QUERIES = ["naïve subject 7", "passage passage passage number 12", "café", "quoted", "nowhere to be found", "", "subject " * 1200]


def assert_rescored(retriever: Retriever, queries: list[str], n_rows: int) -> None:
    """Compare with a search of full depth, bit by bit: of no row for the first query, of some, of all for the last."""
    hits, rng = retriever.retrieve(queries, n_rows), np.random.default_rng(0)
    chosen = [np.flatnonzero(rng.random(n_rows) < share) for share in np.linspace(0, 1, len(queries))]
    for found, rows, of_all, scores in zip(retriever.rescore(queries, chosen), chosen, *hits, strict=True):
        expected = np.full(n_rows, -np.inf, dtype=np.float32)
        expected[of_all[of_all >= 0]] = scores[of_all >= 0]
        assert found.tobytes() == expected[rows].tobytes()


def test_bm25_gives_the_very_scores_of_a_search(build: Callable[..., PassageStore], made_passages: list[Passage]) -> None:
    """Also with terms in nearly every row, with repeated ones, and with more terms than the filter of a search takes."""
    many = Passage("many", "Frequencies", "subject " * 700 + " ".join(f"word{n}" for n in range(1100)))
    store = build([*made_passages, many])
    build_index("made", "bm25", store)
    assert_rescored(open_retriever("made", "bm25", store), [*QUERIES, " ".join(f"word{n}" for n in range(1100))], len(store))


@pytest.mark.slow
def test_bm25_over_several_blocks_of_rows(build: Callable[..., PassageStore]) -> None:
    store = build([Passage(str(n), "t", f"w{n % 7} x{n % 4001} y{n}") for n in range(140_000)])
    build_index("made", "bm25", store)
    queries = ["w3 x17", "x4000 w1 y139999", "w0 w1 w2 w3 w4 w5 w6"]
    assert_rescored(open_retriever("made", "bm25", store), queries, len(store))


def test_corruption_of_bm25_is_noticed(build: Callable[..., PassageStore], made_passages: list[Passage]) -> None:
    build_index("made", "bm25", build(made_passages))
    path = index_ref("made", "bm25").path
    content = bytearray((path / "impacts").read_bytes())
    content[0] ^= 1
    (path / "impacts").write_bytes(content)
    retriever = BM25Retriever(BM25Index(IndexFiles(path, index_ref("made", "bm25").manifest(None), DTYPES), ANALYZER, 0.9, 0.4))
    everything = np.arange(len(made_passages))
    with pytest.raises(ArtifactCorrupt, match="impacts"):
        retriever.rescore([" ".join(f"{n} {n + 1}" for n in range(0, 3000, 2))], [everything])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dense_scores_are_those_of_a_search(build: Callable[..., PassageStore], made_passages: list[Passage], dtype: str) -> None:
    store = build(made_passages)
    retriever = dense_over(store, missing=[0, 999, 1000, 2999], dtype=dtype)
    assert_rescored(retriever, QUERIES, len(store))
    (scores,) = retriever.rescore(["passage"], [np.array([0, 1, 999, 1000, 1001, 2999])])
    assert np.isneginf(scores).tolist() == [True, False, True, True, False, True]

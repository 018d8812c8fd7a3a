from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.plain import Pairs, found_by, plain_cut, plain_merge, plain_scaled
from tests.retrievers.retrieving import at_home
from tests.retrievers.worded import WordEncoder, dense_over
from wikidx.base.errors import IdxError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Scores
from wikidx.indexer.build import build_index
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking, Retriever
from wikidx.retrievers.opening import open_retriever
from wikidx.retrievers.options import DedupRule, MergeRule, RerankRule
from wikidx.retrievers.searcher import LocalSearcher

GROUPS = [
    ["passage about subject 7", "naïve café 3", "quoted"],
    ["subject 12", "passage about subject 7"],
    ["title 40 number", "number 2899", "subject 5", "title 40 number"],
    ["xyzzy", "subject 2"],  # BM25 finds nothing for the primary query
    ["xyzzy"],
    ["subject 7"],  # every candidate was found with the primary query, so that reranking by it changes nothing
]


@pytest.fixture(scope="module")
def built(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the store of ``made_passages`` and BM25."""
    with at_home(shutil.copytree(made_home, tmp_path_factory.mktemp("reranked") / "home")) as home:
        build_index("made", "bm25", open_store("made"))
    return home


@pytest.fixture
def store(built: Path, monkeypatch: pytest.MonkeyPatch) -> PassageStore:
    monkeypatch.setenv("IDX_HOME", str(built))
    return open_store("made")


@pytest.fixture(scope="module")
def retrievers(built: Path) -> dict[str, Retriever]:
    with at_home(built):
        store = open_store("made")
        return {"bm25": open_retriever("made", "bm25", store), "worded": dense_over(store)}


def plain_fuse(lists: list[Pairs], names: Sequence[str], options: SearchOptions) -> Pairs:
    if len(lists) == 1:
        return lists[0]
    weights = [(options.weights or {}).get(name, 1.0) for name in names]
    return (
        plain_scaled(lists, weights, "normalized" if options.normalize else "weighted")
        if options.fuse == "weighted"
        else plain_merge(lists, "rrf")
    )


def plain_search(retrievers: dict[str, Retriever], store: PassageStore, group: Sequence[str], options: SearchOptions) -> Pairs:
    """The definition: one query at a time, dictionaries, and for the primary query a search of full depth."""
    names = list(retrievers)
    depth = max(options.depth, options.k)
    fused = [plain_fuse([found_by(retrievers[name], query, depth) for name in names], names, options) for query in dict.fromkeys(group)]
    text_key = store.text_key.tolist() if options.dedup == "text" else None
    n_kept = options.k if options.rerank == "none" else max(options.k, options.rerank_depth or len(store))
    merged = plain_cut(plain_merge(fused, options.merge), n_kept, text_key)
    if options.rerank == "none":
        return merged
    candidates = {row for row, _ in merged}
    lists = [[(row, score) for row, score in found_by(retrievers[name], group[0], len(store)) if row in candidates] for name in names]
    ranked = plain_fuse(lists, names, options)
    missing = sum(w * (min((s for _, s in line), default=0.0)) for w, line in zip([1.0] * len(lists), lists, strict=True))
    rest = sorted(candidates - {row for row, _ in ranked})
    ranked += [(row, missing if options.fuse == "weighted" and len(names) > 1 else 0.0) for row in rest]
    return ranked[: options.k]


def pairs_of(ranking: Ranking) -> Pairs:
    return [(hit.row, hit.score) for hit in ranking]


RULES: list[tuple[MergeRule, RerankRule, DedupRule]] = [
    (merge, rerank, "text" if (rerank == "none") == (merge in ("max", "rrf")) else "row")
    for merge in ("max", "sum", "rrf", "interleave")
    for rerank in ("none", "primary")
]


@pytest.mark.parametrize(
    ("names", "options"),
    [
        *((["bm25"], SearchOptions(k=7, depth=30, merge=merge, rerank=rerank, dedup=dedup)) for merge, rerank, dedup in RULES),
        (["bm25", "worded"], SearchOptions(k=7, depth=30, rerank="primary")),
        (["bm25", "worded"], SearchOptions(k=7, depth=30, rerank="primary", rerank_depth=20, merge="sum", dedup="text")),
        (["bm25", "worded"], SearchOptions(k=7, depth=30, rerank="primary", fuse="weighted")),
        (["bm25", "worded"], SearchOptions(k=7, depth=30, fuse="weighted", weights={"bm25": 0.5}, merge="rrf")),
        (["bm25", "worded"], SearchOptions(k=7, depth=30, fuse="weighted", normalize=True, merge="interleave")),
    ],
)
def test_rankings_of_groups_are_the_definition(
    store: PassageStore, retrievers: dict[str, Retriever], names: list[str], options: SearchOptions
) -> None:
    used = {name: retrievers[name] for name in names}
    for group, ranking in zip(GROUPS, LocalSearcher(store, used).search_groups(GROUPS, options), strict=True):
        assert pairs_of(ranking) == plain_search(used, store, group, options)


def test_reranking_by_the_root_query_searches_and_encodes_nothing_twice(store: PassageStore) -> None:
    encoder = WordEncoder()
    retriever = dense_over(store)
    retriever.encoder = encoder
    LocalSearcher(store, {"worded": retriever}).search_groups(GROUPS, SearchOptions(rerank="primary"))
    assert sorted(encoder.encoded) == sorted({query for group in GROUPS for query in group})


def test_threads_get_their_own_rankings(store: PassageStore, retrievers: dict[str, Retriever]) -> None:
    searcher = LocalSearcher(store, retrievers)
    settings = [SearchOptions(k=7, merge=merge, rerank=rerank, dedup=dedup) for merge, rerank, dedup in RULES if merge in ("max", "rrf")]
    alone = [searcher.search_groups(GROUPS, options) for options in settings]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda options: searcher.search_groups(GROUPS[::-1], options)[::-1], settings * 4))
    assert found == alone * 4


class Reader:
    """A reranker that prefers passages with high ids and records the pairs that it read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        self.read += [(query, int(passage.id)) for query, passage in zip(queries, passages, strict=True)]
        return np.array([int(passage.id) // 2 for passage in passages], dtype=np.float32)


def test_a_cross_encoder_reads_each_candidate_with_the_root_query_once(store: PassageStore) -> None:
    reader = Reader()
    searcher = LocalSearcher(store, {"bm25": open_retriever("made", "bm25", store)}, reader)
    groups = [*GROUPS, GROUPS[0]]
    rankings = searcher.search_groups(groups, SearchOptions(k=5, depth=30, rerank="cross-encoder"))
    pairs = set()
    for group, ranking in zip(groups, rankings, strict=True):
        candidates = {hit.row: hit.passage for found in searcher.search(group, SearchOptions(k=30, depth=30)) for hit in found}
        pairs |= {(group[0], int(passage.id)) for passage in candidates.values()}
        expected = [(row, float(int(passage.id) // 2)) for row, passage in candidates.items()]
        assert pairs_of(ranking) == sorted(expected, key=lambda pair: (-pair[1], pair[0]))[:5]
        assert [hit.passage for hit in ranking] == store.get_many([hit.row for hit in ranking])
    assert sorted(reader.read) == sorted(pairs)


def test_only_the_best_candidates_are_reranked(store: PassageStore) -> None:
    reader = Reader()
    searcher = LocalSearcher(store, {"bm25": open_retriever("made", "bm25", store)}, reader)
    (merged,) = searcher.search_groups(GROUPS[:1], SearchOptions(k=12))
    (ranking,) = searcher.search_groups(GROUPS[:1], SearchOptions(k=5, rerank="cross-encoder", rerank_depth=12))
    assert {number for _, number in reader.read} == {int(hit.passage.id) for hit in merged}
    assert len(ranking) == 5
    reader.read.clear()
    searcher.search_groups(GROUPS[:1], SearchOptions(k=5, rerank="cross-encoder", rerank_depth=2))
    assert len(reader.read) == 5  # k, at least


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_of_a_reranker_that_are_no_numbers_are_errors(store: PassageStore, score: float) -> None:
    class Broken(Reader):
        def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
            return np.full(len(queries), score, dtype=np.float32)

    searcher = LocalSearcher(store, {"bm25": open_retriever("made", "bm25", store)}, Broken())
    with pytest.raises(IdxError, match="row 7 was given a score that is not a finite number"):
        searcher.search(["subject 7"], SearchOptions(rerank="cross-encoder"))


def test_groups_without_any_candidate_are_reranked_to_nothing(store: PassageStore) -> None:
    searcher = LocalSearcher(store, {"bm25": open_retriever("made", "bm25", store)}, Reader())
    for rerank in ("primary", "cross-encoder"):
        assert searcher.search_groups([["xyzzy"], ["", "xyzzy"]], SearchOptions(rerank=rerank)) == [[], []]

"""Collapsing to documents, against a plain computation over the ranking of all passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.retrievers.test_documents import WORDS, documents, documents_home, documents_url, made_documents
from wikidx.base.errors import IdxError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Scores
from wikidx.indexer.build import build_index
from wikidx.retrievers.base import Ranking, Rankings
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import CollapseRule
from wikidx.retrievers.searcher import LocalSearcher

__all__ = ["documents", "documents_home", "documents_url"]  # fixtures

ALL = 1_000


class ByLength:
    """Reranker that prefers long passages, and among them those that begin late in the alphabet."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        return np.array([len(passage.text) + ord(passage.text[0]) / 1000 for passage in passages], dtype=np.float32)


QUERIES = ["fox", "whale river", "king red deep metal", "nothing", "café naïve stone bell fox"]
GROUPS = [QUERIES[:2], QUERIES[2:], ["nothing"], [*WORDS]]


def collapsed(ranking: Ranking, k: int, *, is_summed: bool) -> list[tuple[str, float]]:
    """Return ids and scores of the k best documents of a ranking of passages."""
    found = dict[str, list[Any]]()
    for hit in ranking:
        assert hit.span is not None
        found.setdefault(hit.span.document, []).append(hit)
    scores = [
        (hits[0], np.float32(sum(float(hit.score) for hit in hits)) if is_summed else np.float32(hits[0].score)) for hits in found.values()
    ]
    best = sorted(scores, key=lambda pair: (-pair[1], pair[0].row))
    return [(hit.id, float(score)) for hit, score in best[:k]]


def shown(ranking: Ranking) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in ranking]


@pytest.fixture(params=["here", "served"])
def words(request: pytest.FixtureRequest, documents: Path) -> LocalSearcher | RemoteSearcher:
    """Passages of four words, of which some documents have very many."""
    if request.param == "here":
        return open_searcher("words", "bm25")
    return RemoteSearcher(request.getfixturevalue("documents_url"), corpus="words")


@pytest.mark.parametrize("k", [1, 4, 17, 100])
@pytest.mark.parametrize("merge", ["max", "sum", "rrf", "interleave"])
def test_documents_are_those_of_all_passages(words: LocalSearcher | RemoteSearcher, k: int, merge: Any) -> None:  # noqa: ANN401 - a literal
    found = Rankings()
    rules: list[tuple[bool, CollapseRule]] = [(False, "document"), (True, "document_sum")]
    for is_summed, rule in rules:
        whole = words.search_groups(GROUPS, k=ALL, depth=ALL, merge=merge)
        found = words.search_groups(GROUPS, k=k, depth=ALL, merge=merge, collapse=rule)
        assert list(map(shown, found)) == [collapsed(ranking, k, is_summed=is_summed) for ranking in whole]
    assert len(found[3]) == min(k, len({document.id for document in made_documents()}))


@pytest.mark.parametrize("k", [1, 5, 20, 100])
def test_search_goes_deeper_until_there_are_enough(words: LocalSearcher | RemoteSearcher, k: int) -> None:
    whole = words.search_groups(GROUPS, k=ALL)
    found = words.search_groups(GROUPS, k=k, depth=1, collapse="document", explain=True)
    assert list(map(shown, found)) == [collapsed(ranking, k, is_summed=False) for ranking in whole]
    assert (sum(stage.stage == "bm25" for stage in found.stages) > 1) == (k > 1)
    assert list(map(shown, words.search(QUERIES, k=k, depth=1, collapse="document"))) == [
        collapsed(ranking, k, is_summed=False) for ranking in words.search(QUERIES, k=ALL)
    ]


def test_sums_are_those_of_the_candidates(words: LocalSearcher | RemoteSearcher) -> None:
    found = words.search(QUERIES[:3], k=3, depth=40, collapse="document_sum")
    assert list(map(shown, found)) == [collapsed(ranking, 3, is_summed=True) for ranking in words.search(QUERIES[:3], k=40, depth=40)]


def test_provenance_and_text_duplicates(words: LocalSearcher | RemoteSearcher) -> None:
    (found,) = words.search_groups([["fox", "whale"]], k=5, dedup="text", collapse="document")
    (whole,) = words.search_groups([["fox", "whale"]], k=ALL, depth=ALL, dedup="text")
    assert shown(found) == collapsed(whole, 5, is_summed=False)
    by_id = {hit.id: hit for hit in whole}
    assert all(set(hit.provenance) <= set(by_id[hit.id].provenance) != set() for hit in found)


def test_fusion_and_reranking(documents: Path) -> None:
    build_index("words", "bm25-1.2-0.75", open_store("words"))
    fused = open_searcher("words", "bm25+bm25-1.2-0.75")
    for options in ({"fuse": "weighted"}, {"fuse": "rrf"}, {"rerank": "primary", "merge": "sum"}):
        whole = fused.search_groups(GROUPS, k=ALL, depth=ALL, **options)  # type: ignore[arg-type]
        found = fused.search_groups(GROUPS, k=6, depth=ALL, collapse="document", **options)  # type: ignore[arg-type]
        assert list(map(shown, found)) == [collapsed(ranking, 6, is_summed=False) for ranking in whole]
    single = open_searcher("words", "bm25")
    reranking = LocalSearcher(open_store("words"), single._retrievers, ByLength())
    for depth in (1, 30):
        candidates = {hit.row for hit in single.search(["fox"], k=30)[0]}
        (found_one,) = reranking.search(["fox"], k=4, rerank="cross-encoder", rerank_depth=depth, collapse="document")
        documents_found = [hit.span.document for hit in found_one if hit.span]
        assert len(documents_found) == len(set(documents_found)) == 4
        assert {hit.row for hit in found_one} <= candidates
    (whole_one,) = reranking.search(["fox"], k=ALL, depth=ALL, rerank="cross-encoder")
    (found_one,) = reranking.search(["fox"], k=4, depth=ALL, rerank="cross-encoder", collapse="document")
    assert shown(found_one) == collapsed(whole_one, 4, is_summed=False)


def test_passages_without_documents_are_not_collapsed(documents: Path) -> None:
    with pytest.raises(IdxError, match="the passages of 'plain' do not say which document they are of"):
        open_searcher("plain", "bm25").search(["fox"], collapse="document")

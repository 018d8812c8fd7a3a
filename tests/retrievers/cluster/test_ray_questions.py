"""Real questions through three shards, compared with one searcher: BM25 to the bit, vectors and fused lists up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.indexer.cluster.ray_nodes import cluster_of
from tests.retrievers.cluster.sharded_server import serving_shards
from tests.retrievers.test_searchers import clearly_in
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known import sample
from wikidx.indexer.build import build_index
from wikidx.indexer.embedding.cluster.nodes import connect
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher

pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("torch", reason="needs the extra 'dense'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch, cluster_of(3) as found:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp("asked")))
        with connect(found.address):
            yield found


@pytest.fixture(autouse=True)
def home(cluster: Any) -> None:  # noqa: ANN401
    """The module's home, not one of each test's own."""


def groups_of(questions: list[str], size: int) -> list[list[str]]:
    return [questions[first : first + size] for first in range(0, len(questions), size)]


def equal(found: list[Ranking], expected: list[Ranking]) -> None:
    for there, here in zip(found, expected, strict=True):
        assert [hit.score for hit in there] == pytest.approx([hit.score for hit in here], rel=1e-4)
        assert clearly_in(here) <= {hit.row for hit in there}


def test_the_samples_questions_find_the_same_by_vectors_and_fused() -> None:
    """784 passages, because embedding more takes too long here: exact search has the same arithmetic per row for any number of rows."""
    build_store(sample.CORPUS, StoreOptions())
    for name in ("bm25", "minilm"):
        build_index("sample", name, open_store("sample"))
    questions = [question.question for question in sample.questions()]
    names = ("minilm", "bm25+minilm")
    with serving_shards(*names, shards=3, replicas=1, corpus="sample") as sharded:
        for name in names:
            local = open_searcher("sample", name)
            with RemoteSearcher(sharded.url, retriever=name) as remote:
                equal(remote.search(questions), local.search(questions))
                groups = groups_of(questions, 3)
                equal(remote.search_groups(groups), local.search_groups(groups))
                options = SearchOptions(rerank="primary", rerank_depth=50)
                equal(remote.search_groups(groups, options), local.search_groups(groups, options))

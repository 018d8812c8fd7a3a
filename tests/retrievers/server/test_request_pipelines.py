"""Pipelines that requests compose of what a server has open, and the report of a search's stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retrievers.server.conftest import LIMITS
from tests.retrievers.server.serving import ask, serving
from wikidx import RemoteSearcher, open_searcher
from wikidx.corpora.build import open_store
from wikidx.indexer.build import build_index
from wikidx.retrievers.pipelines.notation import parse_pipeline
from wikidx.retrievers.pipelines.saved import write_pipeline
from wikidx.retrievers.server.settings import Settings

QUERIES = ["whale ocean", "fox"]
PIPELINE = "{bm25:3, bm25-1.2-0.75}minmax%12"


@pytest.fixture
def two(made: Path) -> Iterator[str]:
    """A server with two lexical indexes of 'made'."""
    build_index("made", "bm25-1.2-0.75", open_store("made"))
    write_pipeline("made", "mine", parse_pipeline(PIPELINE), "", {})
    with serving(Settings(corpora=("made",), retrievers=("bm25", "bm25-1.2-0.75", "mine"), port=0, limits=LIMITS)) as where:
        yield where
    (made / "made" / "pipelines" / "mine.toml").unlink()


def test_a_request_composes_a_pipeline_of_served_retrievers(two: str) -> None:
    expected = open_searcher("made", PIPELINE).search(QUERIES).to_dict()
    for name in (PIPELINE, "mine"):
        with RemoteSearcher(two, retriever=name) as remote:
            assert remote.search(QUERIES).to_dict() == expected
    assert f'retriever="{PIPELINE}"' not in ask(two, "/metrics").body.decode().replace("\\", "")


@pytest.mark.parametrize(
    ("retriever", "status", "message"),
    [
        ("{bm25, minilm}rrf", 404, "unknown retriever of the pipeline on this server 'minilm'"),
        ("bm25 >> simlm", 404, "unknown reranker of the pipeline on this server 'simlm'"),
        ("{bm25, remote:http://127.0.0.1:9}rrf", 404, "unknown retriever of the pipeline on this server 'remote:http://127.0.0.1:9'"),
        ("{bm25", 422, "pipeline '{bm25', character 6"),
        ("{bm25%1001}rrf", 422, "a retriever of the pipeline is to return 1,001 candidates, 1,000 are allowed"),
        ("bm26", 404, "unknown retriever 'bm26'"),
    ],
)
def test_a_pipeline_of_anything_else_is_refused(two: str, retriever: str, status: int, message: str) -> None:
    answer = ask(two, "/v1/search", {"queries": ["fox"], "retriever": retriever})
    assert answer.status == status
    assert message in answer.json["error"]


def test_an_explained_search_reports_its_stages(two: str) -> None:
    answer = ask(two, "/v1/search", {"queries": QUERIES, "retriever": "mine", "explain": True}).json
    assert [stage["stage"] for stage in answer["stages"][-3:]] == ["minmax%12", "merge max", "passages"]
    assert {stage["stage"] for stage in answer["stages"][:2]} == {"bm25", "bm25-1.2-0.75"}
    assert answer["stages"][2]["candidates_out"] == 24
    assert "stages" not in ask(two, "/v1/search", {"queries": QUERIES}).json
    with RemoteSearcher(two) as remote:
        assert [stage.stage for stage in remote.search(QUERIES, explain=True).stages] == ["bm25", "merge max", "passages"]
        assert remote.search(QUERIES).stages == ()

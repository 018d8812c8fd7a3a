"""Pipelines that requests compose of what a server has open, and the report of a search's stages; refusals are in ``test_bad_input``."""

from __future__ import annotations

from pathlib import Path

from tests.retrievers.conftest import PIPELINE
from tests.retrievers.server.serving import ask, search
from wikidx import RemoteSearcher, open_searcher

QUERIES = ["whale ocean", "fox"]


def test_a_request_composes_a_pipeline_of_served_retrievers(url: str, made: Path) -> None:
    expected = open_searcher("made", PIPELINE).search(QUERIES).to_dict()
    for name in (PIPELINE, "mine"):
        with RemoteSearcher(url, retriever=name) as remote:
            assert remote.search(QUERIES).to_dict() == expected
    assert f'retriever="{PIPELINE}"' not in ask(url, "/metrics").body.decode().replace("\\", "")


def test_an_explained_search_reports_its_stages(url: str) -> None:
    answer = search(url, queries=QUERIES, retriever="mine", explain=True).json
    assert [stage["stage"] for stage in answer["stages"][-3:]] == ["minmax%12", "merge max", "passages"]
    assert {stage["stage"] for stage in answer["stages"][:2]} == {"bm25", "bm25-1.2-0.75"}
    assert answer["stages"][2]["candidates_out"] == 24
    assert "stages" not in search(url, queries=QUERIES).json
    with RemoteSearcher(url) as remote:
        assert [stage.stage for stage in remote.search(QUERIES, explain=True).stages] == ["bm25", "merge max", "passages"]
        assert remote.search(QUERIES).stages == ()

"""The server's report on itself: corpora served, limits, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.retrievers.conftest import RETRIEVERS
from tests.retrievers.server.serving import ask, count, metrics, search, series, serving, wait_until
from wikidx.base.errors import UnknownNameError
from wikidx.corpora.build import open_store
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.settings import Settings

FOX = {"queries": ["fox"]}


@pytest.mark.parametrize(("corpus", "n_passages"), [("made", 600), ("other", 30)])
def test_several_corpora_are_served_each_from_its_own(url: str, made: Path, corpus: str, n_passages: int) -> None:
    with RemoteSearcher(url, corpus=corpus) as remote:
        assert remote.search(["fox number 7"]) == open_searcher(corpus).search(["fox number 7"])
        assert len(remote) == n_passages
    found = ask(url, f"/v1/corpora/{corpus}/passages?id=p7&id=nothing&id=p29").json
    assert [passage["row"] for passage in found["passages"]] == [7, 29]
    assert found["missing"] == ["nothing"]
    about = next(about for about in ask(url, "/v1/indexes").json["corpora"] if about["corpus"] == corpus)
    assert (about["passages"]["rows"], about["fingerprint"]) == (n_passages, open_store(corpus).fingerprint)
    assert [(index["index"], index["rows"], index["parameters"]) for index in about["indexes"]] == [
        (name, n_passages, {}) for name in RETRIEVERS[:2]
    ]
    assert about["retrievers"] == [{"retriever": name, "ready": True} for name in RETRIEVERS]


def test_the_first_corpus_is_the_default_and_a_wrong_one_is_named(url: str) -> None:
    assert ask(url, "/v1/search", FOX).json == search(url, **FOX, corpus="made").json
    with RemoteSearcher(url) as first, RemoteSearcher(url, corpus="othr") as wrong:
        assert len(first) == 600
        with pytest.raises(UnknownNameError, match="unknown corpus 'othr': did you mean 'other'"):
            len(wrong)


def test_its_limits_are_told(url: str) -> None:
    assert ask(url, "/v1/indexes").json["limits"] == {
        "max_k": 100,
        "max_depth": 1000,
        "max_queries": 2000,
        "max_query_characters": 1000,
        "max_candidates": 10_000_000,
        "max_provenance": 200_000,
        "max_rerank_pairs": 10_000,
    }


def test_requests_batches_and_cache_hits_are_counted(made: Path) -> None:
    made_bm25, other_bm25 = ({"corpus": corpus, "index": "bm25"} for corpus in ("made", "other"))
    with serving(Settings(corpora=("made", "other"), port=0, cache_bytes=1 << 20)) as url:
        for queries in (["fox", "whale"], ["fox", "river", "fox"], ["ocean"]):
            assert search(url, queries=queries).status == 200
        assert search(url, **FOX, corpus="other").status == 200
        assert search(url, queries=3).status == 422
        wait_until(lambda: count(url, "idx_cache_misses_total", **made_bm25) >= 6)  # two of them before it was ready
        found = metrics(url)
    expected = {
        series("idx_cache_hits_total", **made_bm25): 1,  # "fox"; it is asked for once in a search
        series("idx_cache_misses_total", **made_bm25): 6,
        series("idx_cache_hits_total", **other_bm25): 0,
        series("idx_requests_total", path="/v1/search", status="200"): 4,
        series("idx_requests_total", path="/v1/search", status="422"): 1,
        series("idx_request_seconds_count", path="/v1/search"): 5,
        series("idx_request_seconds_bucket", path="/v1/search", le="+Inf"): 5,
        series("idx_ready_processes"): 1,
    }
    for corpus, sizes in (("made", (2, 3, 1)), ("other", (1,))):
        batches = {"corpus": corpus, "retriever": "bm25"}
        expected |= {
            series("idx_batch_queries_count", **batches): len(sizes),
            series("idx_batch_queries_sum", **batches): sum(sizes),
            series("idx_queue_queries", **batches): 0,
        }
        for most in (1, 2, 4):
            expected[series("idx_batch_queries_bucket", **batches, le=f"{most}.0")] = sum(size <= most for size in sizes)
    assert {name: found.get(name, 0) for name in expected} == expected


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/openapi.json", "/v1/indexes", "/page/style.css"])
def test_what_answers_get_answers_head(url: str, path: str) -> None:
    whole, head = ask(url, path), ask(url, path, method="HEAD")
    assert (whole.status, head.status, head.body) == (200, 200, b"")
    assert head.headers["content-length"] == str(len(whole.body))
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_key_is_the_same_without_the_end_of_the_line_that_it_was_read_from(made: Path) -> None:
    with serving(Settings(corpora=("other",), port=0, api_key="key\n")) as url:
        assert ask(url, "/v1/indexes", headers={"authorization": "Bearer key"}).status == 200
        assert RemoteSearcher(url, api_key="key\n").corpora().keys() == {"other"}

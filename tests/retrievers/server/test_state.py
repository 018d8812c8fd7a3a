"""The server's report on itself: corpora served, limits, metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.retrievers.server.serving import ask, serving, wait_until
from wikidx.base.errors import InputError
from wikidx.corpora.build import open_store
from wikidx.indexer.build import build_index
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.server.settings import Settings

Counts = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def counts(url: str) -> Counts:
    """All numbers of /metrics, as Prometheus's own reader finds them."""
    families = text_string_to_metric_families(ask(url, "/metrics").body.decode())
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def count(found: Counts, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def test_several_corpora_are_served_each_from_its_own(url: str, made: Path) -> None:
    for corpus, n_passages in (("made", 600), ("other", 30)):
        with RemoteSearcher(url, corpus=corpus) as remote:
            assert remote.search(["fox number 7"]) == open_searcher(corpus).search(["fox number 7"])
        found = ask(url, f"/v1/corpora/{corpus}/passages?id=p7&id=nothing&id=p29").json
        assert [passage["row"] for passage in found["passages"]] == [7, 29]
        assert found["missing"] == ["nothing"]
        about = next(about for about in ask(url, "/v1/indexes").json["corpora"] if about["corpus"] == corpus)
        assert (about["passages"]["rows"], about["fingerprint"]) == (n_passages, open_store(corpus).fingerprint)
        assert [(index["index"], index["rows"], index["parameters"]) for index in about["indexes"]] == [("bm25", n_passages, {})]
        assert about["retrievers"] == [{"retriever": "bm25", "ready": True}]
    assert (
        ask(url, "/v1/search", {"queries": ["number 29"]}).json == ask(url, "/v1/search", {"queries": ["number 29"], "corpus": "made"}).json
    )
    assert ask(url, "/v1/indexes").json["limits"] == {
        "max_k": 100,
        "max_depth": 1000,
        "max_queries": 2000,
        "max_query_characters": 1000,
        "max_candidates": 10_000_000,
        "max_provenance": 1_000_000,
        "max_rerank_pairs": 10_000,
    }


def test_requests_batches_and_cache_hits_are_counted(made: Path) -> None:
    with serving(Settings(corpora=("made", "other"), port=0, cache_bytes=1 << 20)) as url:
        for queries in (["fox", "whale"], ["fox", "river", "fox"], ["ocean"]):
            assert ask(url, "/v1/search", {"queries": queries}).status == 200
        assert ask(url, "/v1/search", {"queries": ["fox"], "corpus": "other"}).status == 200
        assert ask(url, "/v1/search", {"queries": 3}).status == 422
        made_bm25 = {"corpus": "made", "index": "bm25"}
        wait_until(lambda: count(counts(url), "idx_cache_misses_total", **made_bm25) >= 6)  # two of them before it was ready
        found = counts(url)
    assert count(found, "idx_cache_hits_total", **made_bm25) == 1  # "fox"; it is asked for once in a search
    assert count(found, "idx_cache_misses_total", **made_bm25) == 6
    assert count(found, "idx_cache_hits_total", corpus="other", index="bm25") == 0
    search = {"path": "/v1/search"}
    assert count(found, "idx_requests_total", **search, status="200") == 4
    assert count(found, "idx_requests_total", **search, status="422") == 1
    assert count(found, "idx_request_seconds_count", **search) == count(found, "idx_request_seconds_bucket", **search, le="+Inf") == 5
    for corpus, sizes in (("made", (2, 3, 1)), ("other", (1,))):
        batches = {"corpus": corpus, "retriever": "bm25"}
        assert count(found, "idx_batch_queries_count", **batches) == len(sizes)
        assert count(found, "idx_batch_queries_sum", **batches) == sum(sizes)
        for most in (1, 2, 4):
            assert count(found, "idx_batch_queries_bucket", **batches, le=str(float(most))) == sum(size <= most for size in sizes)
        assert count(found, "idx_queue_queries", **batches) == 0
    assert count(found, "idx_ready_processes") == 1


def test_what_answers_get_answers_head(url: str) -> None:
    for path in ("/", "/health", "/ready", "/openapi.json", "/v1/indexes", "/page/style.css"):
        whole, head = ask(url, path), ask(url, path, method="HEAD")
        assert (whole.status, head.status, head.body) == (200, 200, b"")
        assert head.headers["content-length"] == str(len(whole.body))
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_the_description_of_the_api_names_every_field_with_its_bounds(url: str) -> None:
    document = ask(url, "/openapi.json").json
    search = document["paths"]["/v1/search"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {field.name for field in dataclasses.fields(SearchOptions)} <= set(search)
    assert (search["k"]["minimum"], search["k"]["maximum"], search["k"]["default"]) == (1, 100, 10)
    assert search["queries"]["anyOf"][0]["maxItems"] == 2_000
    assert document["paths"]["/ready"]["get"]["responses"]["503"]["description"] == "Not everything is open yet."


def test_nobody_has_an_empty_key() -> None:
    with pytest.raises(InputError, match="the API key is empty"):
        Settings(corpora=("other",), api_key=" ")


def test_an_index_built_meanwhile_is_not_served_until_a_restart(made: Path) -> None:
    with serving(Settings(corpora=("other",), port=0)) as url:
        before = ask(url, "/v1/search", {"queries": ["fox"]}).json
        build_index("other", "bm25", open_store("other"), force=True)
        about = ask(url, "/v1/indexes").json["corpora"][0]
        assert (about["replaced"], about["passages"]["replaced"], about["indexes"][0]["replaced"]) == (True, False, True)
        assert ask(url, "/v1/search", {"queries": ["fox"]}).json == before

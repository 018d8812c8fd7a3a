"""At several times the sustainable load, excess searches are refused, the others answered, and the server recovers afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.serve.load import LoadSpec, Report
from benchmarks.serve.processes import Load
from tests.retrievers.retrieving import Forwarding, opener_of
from tests.retrievers.server.serving import ask, search, serving
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.searching import encode_in_chunks
from wikidx.retrievers.server.settings import Settings
from wikidx.retrievers.wire import ranking_from_json, ranking_to_json

LIMITS = Limits(max_queued_bytes=2_500, max_batch_queries=16, drain_s=0.0)  # of some 64 requests
BODIES = [json.dumps({"queries": [f"fox number {n}"], "k": 3}) for n in range(500)]


class Slow(Forwarding):
    """A retriever that takes time for each query but no CPU, like one on a GPU."""

    def __init__(self, retriever: Retriever, query_s: float) -> None:
        super().__init__(retriever)
        self._query_s = query_s

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        time.sleep(self._query_s * len(queries))
        return super().retrieve(queries, depth)


def send_load(load: Load, url: str, seconds: float, rate: float) -> Report:
    """Return the responses to searches for one query each."""
    return load.report(LoadSpec(int(url.rpartition(":")[2]), "/v1/search", BODIES, seconds, 0, rate))


def test_what_is_too_much_is_refused_and_all_that_is_let_in_is_answered(made: Path) -> None:
    settings = Settings(corpora=("made",), port=0, limits=LIMITS)
    with serving(settings, opener_of(partial(Slow, query_s=0.004))) as url, Load() as load:
        overload = send_load(load, url, 2.0, rate=1_000)  # four times what the retriever can search
        assert set(overload.statuses) <= {"200", "503", "unsent"}
        assert overload.statuses["200"] >= 64
        assert overload.statuses["503"] >= 64
        assert send_load(load, url, 0.5, rate=20).statuses.keys() == {"200"}


def test_many_large_requests_at_once_are_all_answered(made: Path) -> None:
    settings = Settings(corpora=("made",), port=0, limits=Limits(drain_s=0.0))
    bodies = [{"queries": [f"fox {n} {m}" for m in range(512)]} for n in range(20)]
    with serving(settings, opener_of(partial(Slow, query_s=2e-4))) as url, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda body: ask(url, "/retrieve", body), bodies))
    assert [(answer.status, len(answer.json["result"])) for answer in answers] == [(200, 512)] * 20


def test_a_long_ranking_is_sent_in_pieces(url: str, made: Path) -> None:
    """One ranking of a group whose passages were found in 100,000 ways."""
    group = [f"fox number {n}" for n in range(1_000)]
    answer = search(url, groups=[group], k=100, depth=100)
    assert answer.headers["transfer-encoding"] == "chunked"
    assert [ranking_from_json(answer.json["rankings"][0])] == open_searcher("made").search_groups([group], SearchOptions(k=100))
    rankings = open_searcher("made").search_groups([["fox"], group, ["nothing"]], SearchOptions(k=100))
    pieces = list(encode_in_chunks({}, "rankings", rankings, ranking_to_json))
    assert len(pieces) > 1
    assert max(map(len, pieces)) < 700_000
    assert [ranking_from_json(ranking) for ranking in json.loads(b"".join(pieces))["rankings"]] == rankings

"""Searches are batched while the thread is busy, get their own answers and errors, and are dropped when no client waits for them."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

from tests.retrievers.retrieving import at_home
from tests.retrievers.server.serving import Answer, Gated, ask, count, open_gated, search, serving, wait_until
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import DeadlineExceeded, Overloaded, SearchFailed
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.searching import wait_for
from wikidx.retrievers.server.settings import Settings
from wikidx.retrievers.wire import ranking_from_json

FIRST, FOX = {"queries": ["first"]}, {"queries": ["fox"]}
MANY = {"queries": [f"number {n}" for n in range(300)]}
LIMITS = Limits(max_queued_bytes=len(json.dumps(FIRST) + json.dumps(MANY)), max_batch_queries=6, deadline_s=20, drain_s=0.0)


@pytest.fixture(scope="module")
def opened() -> list[Gated]:
    return []


@pytest.fixture(scope="module")
def url(built_home: Path, opened: list[Gated]) -> Iterator[str]:
    """A server whose only retriever can be blocked."""
    with at_home(built_home), serving(Settings(corpora=("made",), port=0, limits=LIMITS), open_gated(opened)) as where:
        yield where


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def retriever(url: str, opened: list[Gated], pool: ThreadPoolExecutor) -> Iterator[Gated]:
    """The retriever of ``url``, blocked by one search for 'first'; it is released at the end."""
    (gated,) = opened
    gated.close_gate()
    first = pool.submit(ask, url, "/v1/search", FIRST)
    assert gated.is_busy.wait(30)
    yield gated
    gated.gate.set()
    assert first.result().status == 200
    wait_until(lambda: n_waiting(url) == 0)


@pytest.fixture
def many(url: str, retriever: Gated, pool: ThreadPoolExecutor) -> Iterator[Future[Answer]]:
    """A search that waits, and leaves no room for another."""
    (waiting,) = send_in_turn(pool, url, [MANY])
    yield waiting
    retriever.gate.set()
    assert waiting.result().status == 200
    assert ask(url, "/v1/search", FOX).status == 200


def n_waiting(url: str) -> float:
    """Return the number of queries that the server reports as waiting or running."""
    return count(url, "idx_queue_queries", corpus="made", retriever="bm25")


def n_answered(url: str, *statuses: int) -> float:
    return sum(count(url, "idx_requests_total", path="/v1/search", status=str(status)) for status in statuses)


def send_in_turn(pool: ThreadPoolExecutor, url: str, bodies: Sequence[dict[str, Any]]) -> list[Future[Answer]]:
    """Send searches, each when the one before it waits on the server."""
    futures, wanted = list[Future[Answer]](), n_waiting(url)
    for body in bodies:
        futures.append(pool.submit(ask, url, "/v1/search", body))
        wanted += len(body["queries"])
        wait_until(lambda: n_waiting(url) == wanted)  # noqa: B023 - used at once
    return futures


def test_what_waits_with_equal_options_is_searched_at_once(url: str, retriever: Gated, pool: ThreadPoolExecutor, made: Path) -> None:
    explained = [{"queries": ["metal"], "explain": True}] * 2  # each has stages of its own
    asked: list[dict[str, Any]] = [
        {"queries": ["river"]},
        {"queries": ["whale", "fox"]},
        {"queries": ["ocean"], "k": 3},
        {"queries": ["river"]},
    ]
    futures = send_in_turn(pool, url, [*asked, *explained])
    retriever.gate.set()
    local = open_searcher("made")
    for future, body in zip(futures, [*asked, *explained], strict=True):
        assert [ranking_from_json(ranking) for ranking in future.result().json["rankings"]] == local.search(**body)
    assert retriever.batches == [["first"], ["river", "whale", "fox"], ["ocean"], ["metal"], ["metal"]]  # equal queries count once


def test_errors_are_told_at_the_places_of_their_queries(url: str, retriever: Gated, pool: ThreadPoolExecutor) -> None:
    futures = send_in_turn(pool, url, [{"queries": queries} for queries in (["fox", [1.0]], [[1.0], "fox", "ocean"], ["fox"])])
    retriever.gate.set()
    answers = [future.result().json for future in futures]
    assert [list(answer.get("errors", {})) for answer in answers] == [["1"], ["0"], []]
    assert [[bool(ranking) for ranking in answer["rankings"]] for answer in answers] == [[True, False], [False, True, True], [True]]
    assert len(retriever.batches) == 2


def test_no_more_is_joined_than_allowed(url: str, retriever: Gated, pool: ThreadPoolExecutor) -> None:
    futures = send_in_turn(pool, url, [{"queries": [f"number {n}"]} for n in range(7)])
    retriever.gate.set()
    assert {future.result().status for future in futures} == {200}
    assert retriever.batches == [["first"], [f"number {n}" for n in range(6)], ["number 6"]]


def test_a_thousand_queries_of_a_request_are_searched_at_once(url: str, opened: list[Gated], made: Path) -> None:
    queries = [f"{word} number {n}" for n in range(250) for word in ("river", "whale", "fox", "ocean")]
    opened[0].batches.clear()
    with RemoteSearcher(url) as remote:
        answers = remote.search(queries, SearchOptions(k=3))
    assert opened[0].batches == [queries]
    assert answers == open_searcher("made").search(queries, SearchOptions(k=3))


def test_an_idle_server_starts_at_once(url: str, opened: list[Gated]) -> None:
    opened[0].batches.clear()
    for n in range(3):
        ask(url, "/v1/search", {"queries": [f"number {n}"]})
    assert opened[0].batches == [["number 0"], ["number 1"], ["number 2"]]


def test_a_search_that_fails_fails_for_itself_only(
    url: str, retriever: Gated, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    futures = send_in_turn(pool, url, [{"queries": [query]} for query in ("river", "poison", "fox")])
    retriever.gate.set()
    answers = [future.result() for future in futures]
    assert [answer.status for answer in answers] == [200, 500, 200]
    assert answers[1].json == {"error": "the search failed: the server's log says why", "error_type": "SearchFailed"}
    assert retriever.batches[1:] == [["river", "poison", "fox"], ["river"], ["poison"], ["fox"]]
    assert "the backend is broken" in caplog.text
    with RemoteSearcher(url) as remote, pytest.raises(SearchFailed, match="the server's log says why"):
        remote.search(["poison"])


def test_searches_that_were_joined_wait_once_for_a_lost_shard(url: str, retriever: Gated, pool: ThreadPoolExecutor) -> None:
    futures = send_in_turn(pool, url, [{"queries": [query]} for query in ("river", "lost", "fox")])
    retriever.gate.set()
    assert [future.result().json["error"] for future in futures] == ["shard 1 is lost"] * 3
    assert retriever.batches[1:] == [["river", "lost", "fox"]]


def test_beyond_the_bound_requests_are_refused_until_there_is_room(url: str, many: Future[Answer]) -> None:
    refused = ask(url, "/v1/search", FOX)
    assert (refused.status, refused.json["error_type"]) == (503, "Overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    texts = ask(url, "/v1/embeddings", {"input": "fox", "model": "minilm"})
    assert (texts.status, texts.json["error"]["type"]) == (503, "server_error")
    message = r"requests of .* kB are waiting, .* are allowed \(--queue-memory\): ask again in a while"
    with RemoteSearcher(url, retries=0) as remote, pytest.raises(Overloaded, match=message):
        remote.search(["fox"])


def test_what_is_refused_unread_leaves_its_connection_usable(url: str, retriever: Gated, many: Future[Answer]) -> None:
    """At capacity, request bodies are not read; the connection's next request is parsed correctly."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    for body in (b"no JSON", b'{"queries": ["fox"]}', b"x" * 200_000):
        connection.request("POST", "/v1/search", body)
        refused = connection.getresponse()
        assert (refused.status, json.loads(refused.read())["error_type"]) == (503, "Overloaded")
        assert refused.getheader("retry-after") == "1"
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b'{"alive":true}'
    retriever.gate.set()
    assert many.result().status == 200
    connection.request("POST", "/v1/search", b'{"queries": ["fox"]}')
    assert len(json.loads(connection.getresponse().read())["rankings"]) == 1
    connection.close()


def test_deadlines_are_kept(url: str, retriever: Gated) -> None:
    n_dropped = count(url, "idx_dropped_total")
    assert search(url, **FOX, timeout_s=1e-100).json["error_type"] == "Overloaded"
    before = n_answered(url, 499, 503)
    answer = search(url, **FOX, timeout_s=0.08)
    assert (answer.status, answer.json["error_type"], answer.headers["retry-after"]) == (503, "Overloaded", "1")
    assert answer.json["error"].startswith("the search had not begun at its deadline: ask again")
    with RemoteSearcher(url, timeout=0.1) as remote, pytest.raises((DeadlineExceeded, Overloaded)):  # whichever gives up first
        remote.search(["whale"])
    wait_until(lambda: n_answered(url, 499, 503) == before + 2)
    retriever.gate.set()
    wait_until(lambda: n_waiting(url) == 0)
    assert count(url, "idx_dropped_total") > n_dropped
    assert retriever.batches == [["first"]]  # what came too late was not searched


def test_a_search_that_has_begun_is_given_up_at_its_deadline(url: str, opened: list[Gated]) -> None:
    opened[0].close_gate()
    answer = search(url, **FOX, timeout_s=0.3)
    opened[0].gate.set()
    assert (answer.status, answer.json) == (504, {"error": "there was no answer within 0.3 s", "error_type": "DeadlineExceeded"})


@pytest.mark.parametrize(("timeout_s", "said"), [(0.012, "0.01 s"), (1e-9, "less than 0.01 s"), (-1e-3, "less than 0.01 s")])
def test_a_tiny_time_limit_is_told_as_what_it_is(timeout_s: float, said: str) -> None:
    async def wait() -> None:
        new = asyncio.get_running_loop().create_future
        await wait_for(Request({"type": "http", "state": {"gone": new()}}), new(), timeout_s)

    with pytest.raises(DeadlineExceeded, match=f"there was no answer within {said}$"):
        asyncio.run(wait())

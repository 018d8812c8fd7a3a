"""Searches are batched while the thread is busy, get their own answers and errors, and are dropped when no client waits for them."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request

from tests.retrievers.server.serving import Gated, ask, open_gated, serving, wait_until
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import DeadlineExceeded, Overloaded, SearchFailed
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.searching import wait_for
from wikidx.retrievers.server.settings import Settings

FIRST, MANY = {"queries": ["first"]}, {"queries": [f"number {n}" for n in range(300)]}
LIMITS = Limits(max_queued_bytes=len(json.dumps(FIRST) + json.dumps(MANY)), max_batch_queries=6, deadline_s=20, drain_s=0.0)


@pytest.fixture(scope="module")
def opened() -> dict[str, Gated]:
    return {}


@pytest.fixture(scope="module")
def url(built_home: Path, opened: dict[str, Gated]) -> Iterator[str]:
    """A server whose only retriever can be blocked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(built_home))
        with serving(Settings(corpora=("made",), port=0, limits=LIMITS), open_gated(opened)) as where:
            yield where


@pytest.fixture
def retriever(url: str, opened: dict[str, Gated]) -> Iterator[Gated]:
    """The retriever of ``url``, blocked by one search for 'first'; it is released at the end."""
    gated = opened["bm25"]
    with ThreadPoolExecutor(1) as pool:
        gated.close_gate()
        first = pool.submit(ask, url, "/v1/search", FIRST)
        assert gated.is_busy.wait(30)
        yield gated
        gated.gate.set()
        assert first.result().status == 200
    wait_until(lambda: n_waiting(url) == 0)


def n_waiting(url: str) -> float:
    """Return the number of queries that the server reports as waiting or running."""
    return measured(url, 'idx_queue_queries{corpus="made",retriever="bm25"}')


def measured(url: str, name: str) -> float:
    lines = ask(url, "/metrics").body.decode().splitlines()
    return float(next((line.split()[-1] for line in lines if line.startswith(name)), 0))


def test_what_waits_with_equal_options_is_searched_at_once(url: str, retriever: Gated, made: Path) -> None:
    asked: list[tuple[list[str], SearchOptions]] = [
        (["river"], SearchOptions()),
        (["whale", "fox"], SearchOptions()),
        (["ocean"], SearchOptions(k=3)),
        (["river"], SearchOptions()),
    ]
    with ThreadPoolExecutor(len(asked)) as pool, RemoteSearcher(url) as remote:
        futures = []
        for n, (queries, options) in enumerate(asked, 1):
            futures.append(pool.submit(remote.search, queries, options))
            wait_until(lambda: n_waiting(url) == 1 + sum(len(queries) for queries, _ in asked[:n]))  # noqa: B023 - used at once
        retriever.gate.set()
        answers = [future.result() for future in futures]
    local = open_searcher("made")
    assert answers == [local.search(queries, options) for queries, options in asked]
    assert retriever.batches == [["first"], ["river", "whale", "fox"], ["ocean"]]  # equal queries count once


def test_no_more_is_joined_than_allowed(url: str, retriever: Gated) -> None:
    with ThreadPoolExecutor(7) as pool:
        futures = []
        for n in range(7):
            futures.append(pool.submit(ask, url, "/v1/search", {"queries": [f"number {n}"]}))
            wait_until(lambda: n_waiting(url) == 2 + n)  # noqa: B023 - used at once
        retriever.gate.set()
        assert {future.result().status for future in futures} == {200}
    assert retriever.batches == [["first"], [f"number {n}" for n in range(6)], ["number 6"]]


def test_a_thousand_queries_of_a_request_are_searched_at_once(url: str, opened: dict[str, Gated], made: Path) -> None:
    queries = [f"{word} number {n}" for n in range(250) for word in ("river", "whale", "fox", "ocean")]
    opened["bm25"].batches.clear()
    with RemoteSearcher(url) as remote:
        answers = remote.search(queries, SearchOptions(k=3))
    assert opened["bm25"].batches == [queries]
    assert answers == open_searcher("made").search(queries, SearchOptions(k=3))


def test_an_idle_server_starts_at_once(url: str, opened: dict[str, Gated]) -> None:
    opened["bm25"].batches.clear()
    for n in range(3):
        ask(url, "/v1/search", {"queries": [f"number {n}"]})
    assert opened["bm25"].batches == [["number 0"], ["number 1"], ["number 2"]]


def test_a_search_that_fails_fails_for_itself_only(url: str, retriever: Gated, caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(3) as pool:
        futures = []
        for n, query in enumerate(["river", "poison", "fox"], 2):
            futures.append(pool.submit(ask, url, "/v1/search", {"queries": [query]}))
            wait_until(lambda: n_waiting(url) == n)  # noqa: B023 - used at once
        retriever.gate.set()
        answers = [future.result() for future in futures]
    assert [answer.status for answer in answers] == [200, 500, 200]
    assert answers[1].json == {"error": "the search failed: the server's log says why", "error_type": "SearchFailed"}
    assert retriever.batches[1:] == [["river", "poison", "fox"], ["river"], ["poison"], ["fox"]]
    assert "the backend is broken" in caplog.text
    with RemoteSearcher(url) as remote, pytest.raises(SearchFailed, match="the server's log says why"):
        remote.search(["poison"])


def test_beyond_the_bound_requests_are_refused_until_there_is_room(url: str, retriever: Gated) -> None:
    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(ask, url, "/v1/search", MANY)
        wait_until(lambda: n_waiting(url) == 301)
        refused = ask(url, "/v1/search", {"queries": ["fox"]})
        assert (refused.status, refused.json["error_type"]) == (503, "Overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        texts = ask(url, "/v1/embeddings", {"input": "fox", "model": "minilm"})
        assert (texts.status, texts.json["error"]["type"]) == (503, "server_error")
        with (
            RemoteSearcher(url, retries=0) as remote,
            pytest.raises(Overloaded, match=r"requests of .* kB are waiting, .* are allowed \(--queue-memory\): ask again in a while"),
        ):
            remote.search(["fox"])
        retriever.gate.set()
        assert many.result().status == 200
    assert ask(url, "/v1/search", {"queries": ["fox"]}).status == 200


def test_what_is_refused_unread_leaves_its_connection_usable(url: str, retriever: Gated) -> None:
    """At capacity, request bodies are not read; the connection's next request is parsed correctly."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(ask, url, "/v1/search", MANY)
        wait_until(lambda: n_waiting(url) == 301)
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


def test_a_client_asks_again_when_told_to(url: str, retriever: Gated, made: Path) -> None:
    with ThreadPoolExecutor(2) as pool, RemoteSearcher(url) as remote:
        many = pool.submit(ask, url, "/v1/search", MANY)
        wait_until(lambda: n_waiting(url) == 301)
        patient = pool.submit(remote.search, ["fox"])
        wait_until(lambda: measured(url, 'idx_requests_total{path="/v1/search",status="503"}') > 0)
        retriever.gate.set()
        assert patient.result() == open_searcher("made").search(["fox"])
        assert many.result().status == 200


def test_deadlines_are_kept(url: str, retriever: Gated) -> None:
    def n_given_up() -> float:
        return sum(measured(url, f'idx_requests_total{{path="/v1/search",status="{status}"}}') for status in (499, 503))

    n_dropped = measured(url, "idx_dropped_total")
    assert ask(url, "/v1/search", {"queries": ["fox"], "timeout_s": 1e-100}).json["error_type"] == "Overloaded"
    before = n_given_up()
    answer = ask(url, "/v1/search", {"queries": ["fox"], "timeout_s": 0.08})
    assert (answer.status, answer.json["error_type"], answer.headers["retry-after"]) == (503, "Overloaded", "1")
    assert answer.json["error"].startswith("the search had not begun at its deadline: ask again")
    with (
        RemoteSearcher(url, timeout=0.1) as remote,
        pytest.raises((DeadlineExceeded, Overloaded)),
    ):  # the client or the server gives up first
        remote.search(["whale"])
    wait_until(lambda: n_given_up() == before + 2)
    retriever.gate.set()
    wait_until(lambda: n_waiting(url) == 0)
    assert measured(url, "idx_dropped_total") > n_dropped
    assert retriever.batches == [["first"]]  # what came too late was not searched


def test_a_search_that_has_begun_is_given_up_at_its_deadline(url: str, opened: dict[str, Gated]) -> None:
    opened["bm25"].close_gate()
    answer = ask(url, "/v1/search", {"queries": ["fox"], "timeout_s": 0.3})
    opened["bm25"].gate.set()
    assert (answer.status, answer.json["error_type"], answer.json["error"]) == (
        504,
        "DeadlineExceeded",
        "there was no answer within 0.3 s",
    )


@pytest.mark.parametrize(("timeout_s", "said"), [(0.012, "0.01 s"), (1e-9, "less than 0.01 s"), (-1e-3, "less than 0.01 s")])
def test_a_tiny_time_limit_is_told_as_what_it_is(timeout_s: float, said: str) -> None:
    async def wait() -> None:
        await wait_for(Request({"type": "http", "state": {}}), asyncio.get_running_loop().create_future(), timeout_s)

    with pytest.raises(DeadlineExceeded, match=f"there was no answer within {said}$"):
        asyncio.run(wait())


def test_a_search_whose_client_has_gone_is_not_done(url: str, retriever: Gated) -> None:
    before = measured(url, 'idx_requests_total{path="/v1/search",status="499"}')
    where = urlsplit(url)
    body = b'{"queries": ["river"]}'
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: n_waiting(url) == 2)
    wait_until(lambda: measured(url, 'idx_requests_total{path="/v1/search",status="499"}') == before + 1)
    retriever.gate.set()
    wait_until(lambda: n_waiting(url) == 0)
    assert retriever.batches == [["first"]]

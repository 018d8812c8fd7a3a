"""Arbitrary bytes: the server answers or closes the connection, and keeps running; clients report an answer of another kind of server."""

from __future__ import annotations

import json
import socket
import socketserver
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import examples, mutations, read_or_refuse
from tests.loopback import listening
from tests.retrievers.conftest import LIMITS, built_home  # noqa: F401 - a fixture
from tests.retrievers.retrieving import at_home
from tests.retrievers.server.serving import ask, serving
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.mcp.sources import RemoteSource
from wikidx.retrievers.server.settings import Settings
from wikidx.runtimes.execution.identity import describe_served

BODY = b'{"queries": ["fox"], "k": 3}'
HEAD = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 28\r\nconnection: close\r\n\r\n"
GROUPS = b'{"groups": [["fox", "whale"], ["x"]], "merge": "rrf", "dedup": "text", "rerank": "primary", "weights": {"bm25": 1}}'
REQUESTS = (
    HEAD + BODY,
    b'POST /retrieve HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n14\r\n{"queries": ["fox"] }\r\n0\r\n\r\n',
    b"GET /v1/corpora/made/passages?id=p1&id=p2 HTTP/1.1\r\nhost: localhost\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"HEAD /metrics HTTP/1.0\r\n\r\n",
)


@pytest.fixture(scope="module")
def url(built_home: Path) -> Iterator[str]:  # noqa: F811 - the fixture
    with at_home(built_home), serving(Settings(corpora=("made", "other"), port=0, limits=LIMITS)) as where:
        yield where


def exchanged(url: str, request: bytes) -> bytes:
    """Send bytes, end the request, and return the response."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:  # it may close as soon as it has seen enough
            return b""


@examples()
@given(request=mutations(*REQUESTS))
def test_any_bytes(url: str, request: bytes) -> None:
    answer = exchanged(url, request)
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert answer[9:10] in (b"", b"1", b"2", b"3", b"4")
    assert b"Traceback" not in answer
    assert ask(url, "/health").status == 200


@examples()
@given(body=mutations(BODY, GROUPS))
@example(body=b'{"queries": ["fox"], "k": ' + b"9" * 5_000 + b"}")
@example(body=b'{"queries": ["\\u2028\\u0000"]}')
def test_any_body(url: str, body: bytes) -> None:
    for path in ("/v1/search", "/retrieve"):
        answer = ask(url, path, body)
        assert answer.status in (200, 400, 404, 422), answer
        if answer.status != 200:
            assert set(answer.json) == {"error", "error_type"}
            assert len(answer.json["error"].splitlines()) == 1


def answering(content: bytes) -> AbstractContextManager[str]:
    """A server that answers every connection with some bytes and closes it."""

    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(content)

    return listening(Answering)


PROVENANCE = [{"query": "q", "retriever": "bm25", "rank": 1, "score": 1.5}]
RANKING = [{"id": "1", "title": "T", "text": "x", "row": 0, "score": 1.5, "provenance": PROVENANCE}]
OFFERS = [
    {
        "corpus": "made",
        "fingerprint": "f",
        "passages": {"rows": 3},
        "indexes": [{"index": "bm25", "rows": 3, "bytes": 5, "created": "2026-01-01"}],
        "retrievers": [{"retriever": "bm25", "ready": True}],
    }
]
PASSAGE = {"id": "1", "title": "T", "text": "x"}
BODIES = tuple(
    json.dumps(body).encode()
    for body in ({"rankings": [RANKING]}, {"corpora": OFFERS}, {"passages": [PASSAGE]}, {"error": "no", "error_type": "NotReady"})
)
HEADS = (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 No\r\nretry-after: 1\r\n", b"HTTP/1.1 422 No\r\nretry-after: \xb2\r\n")


@examples(0.2)
@given(head=st.sampled_from(HEADS), body=mutations(*BODIES), corruption=mutations(b"connection: close\r\n\r\n"), is_corrupt=st.booleans())
def test_any_answer(head: bytes, body: bytes, corruption: bytes, is_corrupt: bool) -> None:
    content = head + b"content-length: %d\r\n" % len(body) + (corruption if is_corrupt else b"connection: close\r\n\r\n") + body
    with answering(content) as where:
        with RemoteSearcher(where, timeout=5, retries=0) as searcher:
            found = read_or_refuse(lambda: searcher.search(["q"]))
            assert found is None or len(found) == 1
        with closing(RemoteSearcher(where, timeout=5, retries=0)) as client:
            source = RemoteSource(client)
            for read in (source.list_corpora, lambda: source.passages("made", ["1"]), lambda: describe_served(client, "made", "bm25")):
                read_or_refuse(read)

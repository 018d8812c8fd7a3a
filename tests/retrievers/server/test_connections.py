"""Clients that do not read or disconnect: no work is done and nothing is kept for them."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.retrievers.conftest import LIMITS
from tests.retrievers.server.serving import Gated, ask, count, open_gated, send_raw, serving, wait_until
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

FOX = json.dumps({"queries": ["fox"], "k": 3}).encode()


def posted(body: bytes, *headers: bytes, n_bytes: int | None = None) -> bytes:
    """A search as it is sent."""
    length = b"content-length: %d" % (len(body) if n_bytes is None else n_bytes)
    return b"\r\n".join([b"POST /v1/search HTTP/1.1", b"host: localhost", length, *headers, b"", body])


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        yield connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the server closes, which it must do within the socket's timeout."""
    try:
        return b"".join(iter(lambda: connection.recv(65536), b""))
    except ConnectionResetError:
        return b""


def statuses(answers: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answers)]


def test_heads_of_common_length_are_taken(url: str) -> None:
    long = b"x" * 30_000
    head = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\nx: " + long
    rest = b"\r\ny: " + long + b"\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(FOX)
    assert statuses(send_raw(url, head, rest + FOX, pause_s=0.2)) == [200]
    assert statuses(send_raw(url, posted(b" " * 500_000 + FOX), posted(FOX, b"connection: close"))) == [200, 200]


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize("n_at_once", [1, 100, 10_000])
def test_the_wish_for_another_protocol_is_ignored(url: str, protocol: bytes, n_at_once: int, caplog: pytest.LogCaptureFixture) -> None:
    """Java's HttpClient and ``curl --http2`` send it with the first request; body and connection are as without it."""
    wish = posted(FOX, b"connection: Upgrade, HTTP2-Settings", b"upgrade: " + protocol, b"http2-settings: AAMAAABkAAQ")
    whole = posted(FOX) + 2 * wish + wish.replace(b"Upgrade", b"Upgrade, close")
    pieces = [whole[start : start + n_at_once] for start in range(0, len(whole), n_at_once)]
    with connected(url) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        answers = everything(connection)
    assert (statuses(answers), answers.count(b'"rankings"')) == ([200] * 4, 4)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 100 + b"\r\n"], 431),
        ([b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 66_000 + b"\r\n\r\n"], 431),
        ([b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ", b"y" * 40_000, b"y" * 40_000], 431),  # a header without an end
        ([b"GET /", b"x" * 40_000, b"x" * 40_000], 431),
        ([posted(b"", b"transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"") + b"1;", b"x" * 40_000, b"x" * 40_000], 431),
        ([b"GET / HTTP/1.1\r\nhost: localhost\r\nHost: evil.example\r\n\r\n"], 400),
        ([posted(FOX, b"host: localhost")], 400),
    ],
)
def test_a_head_is_no_larger_than_can_be_borne_and_has_one_host(url: str, pieces: list[bytes], status: int) -> None:
    head, _, body = send_raw(url, *pieces, pause_s=0.1).partition(b"\r\n\r\n")
    assert statuses(head) == [status]
    assert ("at most 65,536 bytes and 100 headers" if status == 431 else "several Host headers") in json.loads(body)["error"]
    assert statuses(send_raw(url, posted(FOX), pieces[0] if status == 400 else posted(FOX, b"connection: close")))[0] == 200


# An answer of some 30 MB, which no kernel buffers.
LONG = json.dumps({"queries": [f"number {n}" for n in range(2_000)], "k": 100}).encode()


def test_who_does_not_read_its_answer_holds_up_nobody_else(url: str) -> None:
    with connected(url) as idle:
        idle.sendall(posted(LONG))
        assert idle.recv(100, socket.MSG_PEEK)
        assert ask(url, "/v1/search", FOX).status == 200


def test_a_connection_that_was_taken_last_may_still_ask(made: Path) -> None:
    """A client that has connected, and is slow to send its request, while the server ends."""
    with ExitStack() as server:
        url = server.enter_context(serving(Settings(corpora=("made",), port=0, limits=Limits(drain_s=0.0))))
        with connected(url) as late:
            ending = threading.Thread(target=server.close)
            ending.start()
            wait_until(lambda: not listens(url))
            time.sleep(0.3)
            late.sendall(posted(FOX))
            assert statuses(everything(late)) == [200]
            ending.join()


def listens(url: str) -> bool:
    try:
        with connected(url):
            return True
    except ConnectionRefusedError:
        return False


def answered(url: str, status: int) -> float:
    """Return the number of searches with this status; 499: the client had disconnected."""
    return count(url, "idx_requests_total", path="/v1/search", status=str(status))


def test_who_leaves_takes_its_request_along(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client disconnects while another's search is running: its own search is not run, and no response is written."""
    opened = list[Gated]()
    with serving(Settings(corpora=("made",), port=0, limits=LIMITS), open_gated(opened)) as url:
        (gated,) = opened
        gated.close_gate()
        with connected(url) as first, connected(url) as second:
            first.sendall(posted(FOX))
            assert gated.is_busy.wait(30)
            second.sendall(posted(FOX.replace(b"fox", b"whale")))
            wait_until(lambda: count(url, "idx_queue_queries", corpus="made", retriever="bm25") == 2, 30)
        wait_until(lambda: answered(url, 499) == 2, 30)
        wait_until(lambda: count(url, "idx_queue_queries", corpus="made", retriever="bm25") == 0, 30)  # the one that ran has ended, too
        gated.gate.set()
        assert ask(url, "/v1/search", FOX).status == 200
        assert gated.batches == [["fox"], ["fox"]]
        assert (answered(url, 499), answered(url, 200)) == (2, 1)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_answer_is_encoded_only_as_far_as_it_is_read(made: Path) -> None:
    """The rest of an answer is not encoded once its client has disconnected."""
    with serving(Settings(corpora=("made",), port=0, limits=LIMITS)) as url:
        with connected(url) as connection:
            connection.sendall(posted(LONG))
            assert connection.recv(100)
        wait_until(lambda: answered(url, 499) == 1, 30)


def test_http_1_0_gets_long_answers_whole(url: str) -> None:
    body = json.dumps({"queries": ["fox"] * 20, "k": 100}).encode()
    head, _, answer = send_raw(url, posted(body).replace(b"HTTP/1.1", b"HTTP/1.0")).partition(b"\r\n\r\n")
    assert len(answer) > 1 << 17
    assert b"content-length: %d" % len(answer) in head
    assert b"transfer-encoding" not in head
    assert answer == ask(url, "/v1/search", body).body

"""One contract for all clients over HTTP: the same faults at a search server, an endpoint of embeddings, and a language model."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.scripted import Scripted, answer, scripted
from wikidx.base.errors import IdxError
from wikidx.base.net.endpoint import Endpoint
from wikidx.retrievers.client import RemoteSearcher
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.options import ConnectionOptions

RETRIES = 2
FOUND = {
    "search": {"rankings": [[]]},
    "endpoint": {"data": []},
    "model": {"choices": [{"text": "whale", "finish_reason": "stop"}]},
}


def search(url: str, timeout_s: float) -> Any:  # noqa: ANN401 - of each client its own
    with RemoteSearcher(url, timeout=timeout_s, retries=RETRIES) as remote:
        return remote.search(["fox"])


def endpoint(url: str, timeout_s: float) -> Any:  # noqa: ANN401
    with closing(Endpoint("tiny", url, timeout_s=timeout_s, retries=RETRIES, first_pause_s=0.01)) as tiny:
        return tiny.post("/embeddings", {"input": "fox"})


def model(url: str, timeout_s: float) -> Any:  # noqa: ANN401
    options = ConnectionOptions(timeout=timeout_s, retries=RETRIES, first_pause=0.01)
    with closing(Connection("tiny", url, options)) as tiny:
        return tiny.post("/completions", {"prompt": "fox"})


DOORS: dict[str, Callable[[str, float], Any]] = {"search": search, "endpoint": endpoint, "model": model}
every_door = pytest.mark.parametrize("door", DOORS)


def found(door: str, *headers: str) -> bytes:
    return answer("200 OK", json.dumps(FOUND[door]).encode(), "content-type: application/json", *headers)


@every_door
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (None, "the server closed it without an answer"),
        (answer("200 OK", b'{"half": ')[:-3], "the server closed it before its answer was whole"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH"),
    ],
)
def test_a_broken_connection_is_named_and_retried_unless_a_server_may_have_taken_the_search(
    door: str, fault: bytes | None, said: str
) -> None:
    n_tries = 1 if door == "search" else 1 + RETRIES
    with scripted(*[[fault]] * n_tries) as server, pytest.raises(IdxError, match=said):
        DOORS[door](server.url, 20.0)
    assert len(server.requests) == n_tries


@every_door
@pytest.mark.parametrize("pause", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_busy_server_is_asked_again_when_it_says(door: str, pause: str) -> None:
    busy = answer("503 Service Unavailable", b'{"error": "busy", "error_type": "Overloaded"}', f"retry-after: {pause}")
    with scripted([busy, busy, found(door)]) as server:
        DOORS[door](server.url, 20.0)
    with scripted([busy] * 3) as server, pytest.raises(IdxError, match=r"busy \(3 tries\)"):
        DOORS[door](server.url, 20.0)
    assert len(server.requests) == 1 + RETRIES


@every_door
def test_a_refusal_is_final(door: str) -> None:
    refusal = answer("422 Unprocessable Entity", b'{"error": "no such field", "error_type": "InvalidRequest"}')
    with scripted([refusal]) as server, pytest.raises(IdxError, match="no such field"):
        DOORS[door](server.url, 20.0)


@every_door
def test_a_redirect_on_the_server_is_followed_and_another_is_not(door: str) -> None:
    for place in ("/elsewhere", "http://HERE/elsewhere"):
        with scripted([answer("307 Temporary Redirect", b"", f"location: {place}")], [found(door)]) as server:
            DOORS[door](server.url, 20.0)
        assert server.requests[1].startswith(b"POST /elsewhere HTTP/1.1")
    for place in ("http://127.0.0.2:9/", "//127.0.0.2:9/"):
        moved = answer("307 Temporary Redirect", b"", f"location: {place}")
        with scripted([moved]) as server, pytest.raises(IdxError, match="307"):
            DOORS[door](server.url, 20.0)


def send_slowly(listener: socket.socket, content: bytes, n_at_once: int, n_connections: int) -> None:
    """Send answers in over 8 seconds each, unless the client goes."""
    for _ in range(n_connections):
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(content[:n_at_once])
            for start in range(n_at_once, len(content)):
                time.sleep(0.02)
                connection.sendall(content[start : start + 1])


@every_door
@pytest.mark.parametrize("n_at_once", [20, -400])
def test_slow_headers_and_slow_bodies_end_at_the_time_limit(door: str, n_at_once: int) -> None:
    content = answer("200 OK", b" " * 400, f"x-slow: {'x' * 400}")
    n_tries = 1 + RETRIES if door == "endpoint" else 1
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sending = threading.Thread(target=send_slowly, args=(listener, content, n_at_once % len(content), n_tries))
        sending.start()
        started = time.monotonic()
        with pytest.raises(IdxError, match="answer(ed)? within 0.4 s"):
            DOORS[door](f"http://127.0.0.1:{listener.getsockname()[1]}", 0.4)
        assert time.monotonic() - started < 6
        sending.join()


@every_door
def test_an_address_at_which_nobody_listens_is_named(door: str) -> None:
    with closing(Scripted([])) as server:
        server.close()
    with pytest.raises(IdxError, match=f"{server.url}.*(start the server|is 'idx serve' running there)"):
        DOORS[door](server.url, 20.0)

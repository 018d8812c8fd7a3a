"""Answers that arrive byte by byte end at the time-out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import DeadlineExceeded

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\nx-slow: " + b"x" * 400 + b"\r\n\r\n" + b"x" * 400


def send_slowly(listener: socket.socket, n_at_once: int) -> None:
    """Send an answer to one request in over 8 seconds, unless the client goes."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(65536)
        connection.sendall(ANSWER[:n_at_once])
        for start in range(n_at_once, len(ANSWER)):
            time.sleep(0.02)
            connection.sendall(ANSWER[start : start + 1])


@pytest.mark.parametrize("n_at_once", [20, len(ANSWER) - 400])
def test_slow_headers_and_slow_bodies_end_at_the_deadline(n_at_once: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sending = threading.Thread(target=send_slowly, args=(listener, n_at_once))
        sending.start()
        started = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            RemoteSearcher(url, timeout=0.4, retries=0) as remote,
            pytest.raises(DeadlineExceeded, match="did not answer within 0.4 s: give it more time"),
        ):
            remote.search(["fox"])
        assert time.monotonic() - started < 4
        sending.join()

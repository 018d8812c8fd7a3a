"""A server whose answers are written down beforehand, byte by byte."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def answer(status: str, body: bytes, *headers: str) -> bytes:
    """Return a response as it is sent."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode("latin-1") + b"\r\n" + body


class Scripted:
    """A server that answers the requests of each connection with a list of its own; None closes it without an answer."""

    def __init__(self, script: Sequence[Sequence[bytes | None]]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for answers in self._script:
            connection, _ = self._listening.accept()
            with connection:
                for content in answers:
                    self.requests.append(self._request(connection))
                    if content is None:
                        break
                    connection.sendall(content.replace(b"//HERE/", self.url[5:].encode() + b"/"))

    def _request(self, connection: socket.socket) -> bytes:
        """Return the next request, or nothing if the client has gone."""
        data, end = b"", None
        while end is None or len(data) < end:
            part = connection.recv(65536)
            if not part:
                return b""
            data += part
            head = re.match(rb"(?si).*?\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n", data)
            end = head and head.end() + int(head[1])
        return data

    def close(self) -> None:
        self._thread.join(30)
        self._listening.close()


@contextmanager
def scripted(*script: Sequence[bytes | None]) -> Iterator[Scripted]:
    """Serve a script; yield the server."""
    server = Scripted(script)
    try:
        yield server
    finally:
        server.close()

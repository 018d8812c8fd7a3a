"""Servers on the loopback address."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def end_headers(self) -> None:
        """Add the headers of the Hugging Face hub for a file in a repository, or for a missing one."""
        if "/resolve/" in self.path:
            for name, value in (("X-Repo-Commit", "0" * 40), ("ETag", '"as served"'), ("X-Error-Code", "EntryNotFound")):
                self.send_header(name, value)
        super().end_headers()


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Say nothing of clients that have gone."""


def serving(folder: Path) -> AbstractContextManager[str]:
    """Serve a folder; the context is its address."""
    return listening(functools.partial(_Quiet, directory=str(folder)))


@contextmanager
def listening(handler: Any, port: int = 0) -> Iterator[str]:  # noqa: ANN401 - what socketserver calls for each request
    """Answer requests by a handler in a thread; yield the address."""
    server = _Server(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

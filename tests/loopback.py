"""A file server on the loopback address, for tests of whole builds."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def end_headers(self) -> None:
        """Add the headers of the Hugging Face hub for a file in a repository, or for a missing one."""
        if "/resolve/" in self.path:
            for name, value in (("X-Repo-Commit", "0" * 40), ("ETag", '"as served"'), ("X-Error-Code", "EntryNotFound")):
                self.send_header(name, value)
        super().end_headers()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

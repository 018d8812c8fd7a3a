"""Access log: a line of JSON for every request, on standard output.

A thread that receives the lines several times a second writes them: requests are answered even if the reader of standard output has
stopped. At most ``MAX_WAITING`` lines wait for it, further ones are dropped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

MAX_WAITING = 10_000
_END_S = 2.0  # longest delay of the exit by a reader that has stopped


class AccessLog:
    """Collects lines and has them written; does nothing if disabled."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._lines = list[bytes]()
        self._writing: threading.Thread | None = None

    def add(self, scope: Mapping[str, Any], status: int, n_bytes: int, seconds: float) -> None:
        """Log an answered request."""
        if not self._is_on or len(self._lines) >= MAX_WAITING:
            return
        line = {
            "time": round(time.time(), 3),
            "client": (scope.get("client") or [None])[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "bytes": n_bytes,
            "ms": round(1000 * seconds, 3),
            "process": os.getpid(),
            **scope.get("state", {}).get("logged", {}),
        }
        self._lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Hand the collected lines to a writer thread, unless it is still writing earlier ones."""
        if self._lines and not (self._writing and self._writing.is_alive()):
            self._hand_over()

    def close(self) -> None:
        """Write the waiting lines, as far as standard output accepts them within two seconds."""
        if self._is_on:
            self._hand_over().join(_END_S)

    def _hand_over(self) -> threading.Thread:
        lines, self._lines = b"".join(self._lines), []
        self._writing = threading.Thread(target=_write, args=(lines, self._writing), daemon=True)
        self._writing.start()
        return self._writing


def _write(lines: bytes, before: threading.Thread | None) -> None:
    """Write lines after those of the previous thread; they are lost if standard output is closed or its disk is full.

    They are written to the file descriptor directly: a thread that waits for a reader would hold the buffer's lock at exit.
    """
    if before is not None:
        before.join()
    left = memoryview(lines)
    with suppress(OSError):  # a failing log must not stop the server
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]

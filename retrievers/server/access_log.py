"""Access log: one line of JSON for each request, on standard output.

Several times per second a thread writes the collected lines. Requests are therefore answered even if the reader of standard output has
stopped. At most ``MAX_WAITING`` lines wait; further lines are dropped.
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
_END_S = 2.0  # maximum delay of the exit if the reader of standard output has stopped


class AccessLog:
    """Collector of log lines for a writer thread; if disabled, it ignores all lines."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._lines = list[bytes]()
        self._writing: threading.Thread | None = None

    def add(self, scope: Mapping[str, Any], status: int, n_bytes: int, seconds: float) -> None:
        """Log an answered request."""
        if not self._is_enabled or len(self._lines) >= MAX_WAITING:
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
        """Pass the collected lines to a new writer thread, unless the previous one is still writing."""
        if self._lines and not (self._writing and self._writing.is_alive()):
            self._start_writing()

    def close(self) -> None:
        """Write the waiting lines, for at most two seconds."""
        if self._is_enabled:
            self._start_writing().join(_END_S)

    def _start_writing(self) -> threading.Thread:
        lines, self._lines = b"".join(self._lines), []
        self._writing = threading.Thread(target=_write, args=(lines, self._writing), daemon=True)
        self._writing.start()
        return self._writing


def _write(lines: bytes, previous: threading.Thread | None) -> None:
    """Write lines after the previous thread has ended; the lines are lost if standard output is closed or its disk is full.

    The lines go to the file descriptor, because a thread that waits for a reader at exit would hold the lock of ``sys.stdout``.
    """
    if previous is not None:
        previous.join()
    remaining = memoryview(lines)
    with suppress(OSError):  # a failing log must not stop the server
        while remaining:
            remaining = remaining[os.write(sys.stdout.fileno(), remaining) :]

"""Access log: one line of JSON for each request, on standard output.

Ten times per second, one lasting thread (in a busy server, a new one starts slowly) writes the collected lines. Requests are therefore
answered even if the reader of standard output has stopped. At most ``MAX_WAITING`` lines wait; further lines are dropped.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

MAX_WAITING = 10_000
_PAUSE_S = 0.1  # between writes
_END_S = 2.0  # maximum delay of the exit if the reader of standard output has stopped


class AccessLog:
    """Collector of log lines for a writer thread; if disabled, it ignores all lines."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._lines = list[bytes]()
        self._has_ended = threading.Event()
        self._writer = threading.Thread(target=self._write_lines, name="access log", daemon=True)
        if is_enabled:
            self._writer.start()

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
        self._lines.append(f"{json.dumps(line, separators=(',', ':'))}\n".encode())  # in ASCII: a path steers no terminal

    def close(self) -> None:
        """Write the waiting lines, for at most two seconds."""
        self._has_ended.set()
        if self._is_enabled:
            self._writer.join(_END_S)

    def _write_lines(self) -> None:
        """Write until ``close`` is called; runs in the thread."""
        while not self._has_ended.wait(_PAUSE_S) or self._lines:
            lines = self._lines[:]
            del self._lines[: len(lines)]  # what came meanwhile stays
            _write(b"".join(lines))


def _write(lines: bytes) -> None:
    """Write lines, which are lost if standard output is closed or its disk is full.

    The lines go to the file descriptor, because a thread that waits for a reader at exit would hold the lock of ``sys.stdout``.
    """
    remaining = memoryview(lines)
    with suppress(OSError):  # a failing log must not stop the server
        while remaining:
            remaining = remaining[os.write(sys.stdout.fileno(), remaining) :]

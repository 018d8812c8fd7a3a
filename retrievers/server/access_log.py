"""A line of JSON for every request, on standard output.

Lines are handed to a thread several times a second, which writes them: whoever reads standard output may have stopped, and requests are
answered all the same. At most ``MAX_WAITING`` lines wait for it, further ones are dropped.
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
_END_S = 2.0  # a reader that has stopped does not hold up the end of the process for longer


class AccessLog:
    """Collects lines and has them written; switched off, it does nothing."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._lines = list[bytes]()
        self._writing: threading.Thread | None = None

    def add(self, scope: Mapping[str, Any], status: int, n_bytes: int, seconds: float) -> None:
        """Note a request that was answered."""
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
        """Hand over what was noted, unless what was handed over before is still being written."""
        if self._lines and not (self._writing and self._writing.is_alive()):
            self._hand_over()

    def close(self) -> None:
        """Write what waits, as far as standard output takes it within two seconds."""
        if self._is_on:
            self._hand_over().join(_END_S)

    def _hand_over(self) -> threading.Thread:
        lines, self._lines = b"".join(self._lines), []
        self._writing = threading.Thread(target=_write, args=(lines, self._writing), daemon=True)
        self._writing.start()
        return self._writing


def _write(lines: bytes, before: threading.Thread | None) -> None:
    """Write lines, behind those of the thread before; they are lost if standard output is closed or its disk is full.

    They go to its descriptor, past its buffer, whose lock a thread that waits for a reader would hold at exit.
    """
    if before is not None:
        before.join()
    left = memoryview(lines)
    with suppress(OSError):  # the server is worth more than its log
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]

"""A line of JSON for every request, on standard output.

Lines are handed to a thread several times a second, which writes them: whoever reads standard output may have stopped, and requests are
answered all the same. At most ``MAX_WAITING`` lines wait for it, further ones are dropped.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any

import orjson

MAX_WAITING = 10_000
_END_S = 2.0  # a reader that has stopped does not hold up the end of the process for longer


class _Listener(QueueListener):
    """Writes to the descriptor of standard output, past its buffer, whose lock a thread that waits for a reader would hold at exit."""

    def handle(self, record: logging.LogRecord) -> None:
        """Write lines; they are lost if standard output is closed or its disk is full: the server is worth more than its log."""
        lines = memoryview(record.msg)  # type: ignore[arg-type]  # bytes
        with suppress(OSError):
            while lines:
                lines = lines[os.write(sys.stdout.fileno(), lines) :]


class AccessLog:
    """Collects lines and writes them; switched off, it does nothing."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._lines = list[bytes]()
        self._queue = SimpleQueue[Any]()
        self._handler, self._listener = QueueHandler(self._queue), _Listener(self._queue)
        if is_on:
            self._listener.start()

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
        """Hand over what was noted, unless what was handed over before still waits."""
        if self._lines and self._queue.empty():
            self._hand_over()

    def close(self) -> None:
        """Write what waits, as far as standard output takes it within two seconds."""
        if self._is_on:
            self._hand_over()
            ending = threading.Thread(target=self._listener.stop, daemon=True)
            ending.start()
            ending.join(_END_S)

    def _hand_over(self) -> None:
        self._handler.enqueue(logging.makeLogRecord({"msg": b"".join(self._lines)}))
        self._lines = []

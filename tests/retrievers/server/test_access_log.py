"""The access log when it is not read, and when it cannot be read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

import pytest

from wikidx.retrievers.server import access_log
from wikidx.retrievers.server.access_log import AccessLog

SCOPE = {"method": "GET", "path": "/" + "x" * 200, "client": ("127.0.0.1", 1)}


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[IO[str], IO[bytes]]]:
    """Make standard output a pipe of 65,536 bytes, some 200 lines; yield its two ends."""
    reading, writing = os.pipe()
    with open(writing, "w") as output, open(reading, "rb") as unread:
        monkeypatch.setattr("sys.stdout", output)
        yield output, unread


def logged(n_lines: int) -> AccessLog:
    log = AccessLog(is_enabled=True)
    for n in range(n_lines):
        log.add(SCOPE, 200, n, 0.0)
        time.sleep(n % 1_000 == 0 and 0.2)
    return log


def test_who_stops_reading_the_log_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "MAX_WAITING", 1_000)
    with piped(monkeypatch) as (output, unread):
        log, read = logged(10_000), list[bytes]()
        late = threading.Thread(target=lambda: read.extend(unread))
        late.start()
        log.close()
        output.close()
        late.join()
    numbers = [json.loads(line)["bytes"] for line in read]
    assert numbers == sorted(set(numbers))
    assert 1_000 < len(numbers) < 9_000


def test_nobody_reads_the_log_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shutdown waits for a reader of the log, but not for ever."""
    monkeypatch.setattr(access_log, "_END_S", 0.1)
    with piped(monkeypatch) as (_, unread):
        logged(1_000).close()
        assert any(b'"bytes":999' in line for line in unread)  # the rest is written when somebody reads


def test_a_log_that_cannot_be_written_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with TextIOWrapper(open(tmp_path / "log", "rb")) as read_only:  # noqa: SIM115 - closed with it
        monkeypatch.setattr("sys.stdout", read_only)
        logged(3).close()
    assert (tmp_path / "log").read_bytes() == b""

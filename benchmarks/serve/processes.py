"""Processes of a run: servers, the library, and the load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from benchmarks.serve.load import LoadSpec, Report
from wikidx.base.errors import IdxError

_ROOT = Path(__file__).parents[2]


class Process:
    """A Python process that ends with the block."""

    def __init__(self, arguments: Sequence[str], *, stdout: int = subprocess.PIPE, stderr: int | None = None) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *arguments], cwd=_ROOT, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        self.process.communicate()

    def exchange_line(self, order: object) -> str:
        """Write a request and return the line that answers it."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        return self.line()

    def line(self) -> str:
        """Return the next line."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise IdxError(f"{self.process.args!r} has ended: see above")
        return line


class Server(Process):
    """A server; it prints its address on standard error."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        words = self.process.stderr.readline().split() if self.process.stderr else []
        addresses = [word for word in words if word.startswith("http://")]
        if not addresses:
            raise IdxError(f"{arguments} does not say where it listens: {' '.join(words)}")
        self.url = addresses[0]
        self.port = urlsplit(self.url).port or 0

    def get(self, path: str) -> str | None:
        """Return a page; None if it does not exist, or the server is not up."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError):
            return None

    def check_alive(self) -> None:
        """Raise ``IdxError`` if the process has ended."""
        if self.process.poll() is not None:
            raise IdxError(f"{self.process.args!r} has ended: {self.process.stderr.read() if self.process.stderr else ''}")

    def seconds_until(self, path: str) -> float:
        """Return the time from the start of the process to its first answer with a page."""
        while self.get(path) is None:
            self.check_alive()
            time.sleep(0.01)
        return time.perf_counter() - self.started

    def peak_bytes(self, *, forget: bool = False) -> int:
        """Return the peak of the process's own memory, without mapped files, or its current value after resetting the peak."""
        status = Path(f"/proc/{self.process.pid}/status")
        if forget:
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * (int(fields["VmHWM"].split()[0]) - int(fields["RssFile"].split()[0]))


class Load(Process):
    """The process that sends requests."""

    def __init__(self) -> None:
        super().__init__(["-m", "benchmarks.serve.load"])

    def report(self, order: LoadSpec) -> Report:
        """Carry out an order and return its report."""
        return Report(**json.loads(self.exchange_line(asdict(order))))


def host(kind: str, folder: Path) -> Server:
    """Start one of ``hosts``."""
    return Server(["-m", "benchmarks.serve.hosts", kind, str(folder)])


def library(retriever: str, folder: Path) -> Process:
    """Start a process that searches without a server, and wait until it is ready."""
    process = Process(["-m", "benchmarks.serve.library", retriever, str(folder)])
    process.line()
    return process


def idx_serve(folder: Path, corpus: str, *options: str) -> Server:
    """Start ``idx serve`` as a user does."""
    os.environ["IDX_HOME"] = str(folder / "home")
    return Server(["-c", "from wikidx.runtimes.cli import main; main()", "serve", corpus, "--port", "0", *options])

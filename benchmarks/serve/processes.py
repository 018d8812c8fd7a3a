"""Processes of a run: servers, and the load."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.monitoring import status_bytes
from benchmarks.processes import IDX, ROOT, Process, use_data_home
from benchmarks.serve.load import LoadSpec, Report
from wikidx.base.errors import IdxError


class Server(Process):
    """A server; it prints its address on standard error."""

    def __init__(self, arguments: Sequence[str], cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
        super().__init__(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=cwd, env=env)
        words = self.process.stderr.readline().split() if self.process.stderr else []
        addresses = [word for word in words if word.startswith("http://")]
        if not addresses:
            raise IdxError(f"{arguments} does not say where it listens: {' '.join(words)}")
        self.url = addresses[0]
        self.port = urlsplit(self.url).port or 0

    def ask(self, path: str, body: object = None) -> bytes | None:
        """Return the answer to a GET, or to a POST of JSON; None if there is no such page, or the server is not up."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except (urllib.error.URLError, ConnectionError):
            return None

    def metric(self, name: str) -> float:
        """Return the sum of a metric's values."""
        lines = (self.ask("/metrics") or b"").decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def check_alive(self) -> None:
        """Raise ``IdxError`` if the process has ended."""
        if self.process.poll() is not None:
            raise IdxError(f"{self.process.args!r} has ended: {self.process.stderr.read() if self.process.stderr else ''}")

    def seconds_until(self, path: str, body: object = None) -> float:
        """Return the time from the start of the process to its first answer to a request."""
        while self.ask(path, body) is None:
            self.check_alive()
            time.sleep(0.01)
        return time.perf_counter() - self.started

    def peak_bytes(self) -> int:
        """Return the peak of the process's own memory, without mapped files."""
        return status_bytes(self.process.pid, "VmHWM") - status_bytes(self.process.pid, "RssFile")


class Load(Process):
    """The process that sends requests."""

    def __init__(self) -> None:
        super().__init__(["-m", "benchmarks.serve.load"])

    def report(self, order: LoadSpec) -> Report:
        """Carry out an order and return its report."""
        return Report(**self.exchange(asdict(order)))


def host(kind: str, folder: Path) -> Server:
    """Start one of ``hosts``."""
    return Server(["-m", "benchmarks.serve.hosts", kind, str(folder)])


def idx_serve(folder: Path, corpus: str, *options: str) -> Server:
    """Start ``idx serve`` as a user does."""
    use_data_home(folder)
    return Server([*IDX, "serve", corpus, "--port", "0", *options])

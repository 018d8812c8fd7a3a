"""Measures servers in turn; they and the load process are started on first use."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serve.corpus import read_questions
from benchmarks.serve.load import LoadSpec, Report
from benchmarks.serve.processes import Load, Server, host
from wikidx.retrievers.wire import RETRIEVE, SEARCH

K = 10
BATCH = 32


class Run:
    """The processes of a run, which ends them with ``running``.

    Args:
        folder: of the corpus.
        rounds: number of rounds over the servers.
        seconds: of each measurement.
        running: ends the processes.
        retrievers: retrievers to measure.
    """

    def __init__(self, folder: Path, rounds: int, seconds: float, running: ExitStack, *, retrievers: Sequence[str]) -> None:
        self.folder, self.rounds, self.seconds, self.retrievers = folder, rounds, seconds, retrievers
        self.questions = read_questions(folder)
        self._running = running
        self._load = running.enter_context(Load())
        self._servers: dict[str, Server] = {}

    def server(self, kind: str) -> Server:
        """Return a server, started on first use."""
        if kind not in self._servers:
            self._servers[kind] = server = host(kind, self.folder)
            self._running.callback(server.__exit__, None, None, None)
            path = RETRIEVE if "search-r1" in kind else SEARCH
            self._until_it_answers(server, path)
            self.send_requests(kind, path, BATCH, seconds=2 * self.seconds, clients=2)  # warms up mapped files
            self.send_requests(kind, path, 1, seconds=self.seconds, clients=8)
        return self._servers[kind]

    def first_answer_s(self, kind: str, path: str) -> float:
        """Start one more server, and end it; return the time from its start to its first answer to a search."""
        with host(kind, self.folder) as server:
            return self._until_it_answers(server, path)

    def _until_it_answers(self, server: Server, path: str) -> float:
        order = LoadSpec(server.port, path, self.bodies(path, 1)[:1], 0.001, clients=1)
        while not self._load.report(order).statuses.get("200"):
            server.check_alive()
            time.sleep(0.05)
        return time.perf_counter() - server.started

    def bodies(self, path: str, size: int) -> list[str]:
        """Return distinct requests of this many questions each."""
        groups = [self.questions[first : first + size] for first in range(0, len(self.questions) - size, size)]
        more = {"topk": K, "return_scores": True} if path == RETRIEVE else {"k": K, "depth": K}
        return [json.dumps({"queries": group, **more}) for group in groups]

    def send_requests(self, kind: str, path: str, size: int, *, seconds: float = 0.0, clients: int = 0, rate: float = 0.0) -> Report:
        """Send requests to a server."""
        order = LoadSpec(self.server(kind).port, path, self.bodies(path, size), seconds or self.seconds, clients, rate)
        return self._load.report(order)

    def answer(self, server: Server, body: str) -> Report:
        """Send one request."""
        return self._load.report(LoadSpec(server.port, SEARCH, [body], 0.001, clients=1))

    def alternate(self, kinds: Sequence[str], path: str, size: int, clients: int) -> dict[str, list[Report]]:
        """Return each server's reports for the same requests, in rounds in turn."""
        found: dict[str, list[Report]] = {kind: [] for kind in kinds}
        for kind in kinds:
            self.server(kind)
        for _ in range(self.rounds):
            for kind in kinds:
                found[kind].append(self.send_requests(kind, path, size, clients=clients))
        return found

    def rates(self, kinds: Sequence[str], path: str, size: int, clients: int) -> dict[str, float]:
        """Return the requests per second that each server answers, the median of rounds in turn."""
        found = self.alternate(kinds, path, size, clients)
        return {kind: statistics.median(report.per_second for report in reports) for kind, reports in found.items()}

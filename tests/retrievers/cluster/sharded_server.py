"""A server over shards, and threads that send it one search after the other."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.retrievers.server.serving import ask, running, wait_until
from wikidx.base.errors import IdxError
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.cluster.service import ShardService
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url

Results = list[tuple[int, str]]  # rows and texts

LIMITS = Limits(drain_s=0.0, deadline_s=20.0)


class Sharded:
    """A server over shards."""

    def __init__(self, url: str, service: Service) -> None:
        self.url, self.service = url, service

    def replicas(self, shard: int) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = ask(self.url, "/ready").json["shards"][shard]["replicas"]
        return results

    def process(self, shard: int, replica: int = 0) -> int:
        """Return the number of a replica's process, once it has said it."""
        wait_until(lambda: "process" in self.replicas(shard)[replica], 20)
        results: int = self.replicas(shard)[replica]["process"]
        return results


@contextmanager
def serving_shards(*retrievers: str, shards: int, replicas: int, corpus: str = "made") -> Iterator[Sharded]:
    settings = Settings(corpora=(corpus,), retrievers=retrievers, port=0, limits=LIMITS)
    listener, metrics = listen(settings), Metrics()
    held = ShardService(settings, metrics, shards, replicas)
    service = Service(settings, listener, metrics, held)
    try:
        with running(service, server_url(listener)) as url:
            yield Sharded(url, service)
    finally:
        held.stop()


def is_running(process: int) -> bool:
    """Return whether there is a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Suspend a process."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def search_all(searcher: Searcher) -> Results:
    """Search for what ``Load`` searches for."""
    return [(hit.row, hit.passage.text) for hit in searcher.search(["river number 7"], SearchOptions(k=20))[0]]


class Load:
    """Threads that send one search after the other and record the responses, until the end of a with block."""

    def __init__(self, url: str, check: Callable[[Results], bool]) -> None:
        self._url, self._check = url, check
        self.failures = list[str]()
        self.n_answered = 0
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, n_more: int) -> None:
        wanted = self.n_answered + n_more
        wait_until(lambda: self.n_answered >= wanted or bool(self.failures), 60)

    def _ask(self) -> None:
        with RemoteSearcher(self._url, retriever="minilm", retries=0) as remote:
            while not self._ends.is_set():
                try:
                    results = search_all(remote)
                    if not self._check(results):
                        self.failures.append(f"found {results}")
                except IdxError as error:
                    self.failures.append(repr(error))
                self.n_answered += 1

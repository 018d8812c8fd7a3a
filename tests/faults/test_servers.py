"""Servers over a home in which builds run, and a server that is killed."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, Running, command, idx, started
from tests.faults.conftest import QUERIES
from tests.retrievers.server.serving import ask, wait_until
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import NotReady, Unreachable
from wikidx.retrievers.opening import open_searcher

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full


@contextmanager
def served(*options: object, port: int = 0, work: Sequence[Callable[..., object]] = (command,)) -> Iterator[tuple[Running, str]]:
    """Serve the corpus by BM25 in a process of its own; yield it and its address once it is ready."""
    with started(*work, "serve", "mine", "--retriever", "bm25", "--no-access-log", "--port", port, *options) as running:
        said = running.output / "err"
        wait_until(lambda: "http://" in said.read_text() or not running.process.is_alive())
        assert running.process.is_alive(), said.read_text()
        url = re.findall(r"http://[\w.:]+", said.read_text())[0]
        wait_until(lambda: ask(url, "/ready").status == 200)
        yield running, url


class Client:
    """Threads that send one search after the other, with retries if no server answers."""

    def __init__(self, url: str, expected: dict[str, Ranking], *, again: tuple[type[Exception], ...] = ()) -> None:
        self._url, self._expected, self._again = url, expected, again
        self.n_answered, self.n_again = 0, 0
        self.wrong = list[str]()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(query,)) for query in expected]

    def __enter__(self) -> Client:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, query: str) -> None:
        with RemoteSearcher(self._url) as remote:
            while not self._ends.is_set():
                try:
                    (found,) = remote.search([query])
                except self._again:
                    self.n_again += 1
                    time.sleep(0.05)
                except Exception as error:
                    self.wrong.append(repr(error))
                    return
                else:
                    self.n_answered += 1
                    if found != self._expected[query]:
                        self.wrong.append(f"{query}: {found}")
                    time.sleep(0.01)  # the processors are for the servers

    def is_running(self) -> None:
        """Wait until more has been answered."""
        wanted = self.n_answered + 5 * len(self._threads)
        wait_until(lambda: self.n_answered >= wanted or bool(self.wrong), 60)


@pytest.fixture
def mine(home: Path, whole_home: Path) -> Path:
    """The corpus with BM25 alone."""
    for part in ("passages", "indexes/bm25"):
        shutil.copytree(whole_home / "mine" / part, home / "mine" / part)
    return home


@pytest.fixture
def expected(mine: Path) -> dict[str, Ranking]:
    """Expected results of each query."""
    searcher = open_searcher("mine")
    return {query: searcher.search([query])[0] for query in (*QUERIES, "naïve fox", "bell")}


def test_two_servers_answer_while_a_third_process_builds_and_replaces(mine: Path, expected: dict[str, Ranking]) -> None:
    def replaced(url: str) -> list[bool]:
        (state,) = ask(url, "/v1/indexes").json["corpora"]
        return [state["replaced"], *(index["replaced"] for index in state["indexes"])]

    with served() as (_, one), served() as (_, other), Client(one, expected) as asking_one, Client(other, expected) as asking_other:
        for build, is_replaced in (
            (["--encoder", ENCODER, "--index", "ivf", "--device", "cpu"], False),  # beside what is served
            (["--bm25", "--force"], True),
        ):
            assert idx("build", "mine", *build).status == 0
            for url, asking in ((one, asking_one), (other, asking_other)):
                asking.is_running()
                assert replaced(url) == [is_replaced, is_replaced]
    assert (asking_one.wrong, asking_other.wrong) == ([], [])
    with served() as (_, url):
        assert replaced(url) == [False, False]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_is_killed_and_started_again_has_lost_nothing(mine: Path, expected: dict[str, Ranking], workers: int) -> None:
    """Interrupted searches fail with a retryable error, and the new server answers them identically."""
    with served("--workers", workers) as (running, url), Client(url, expected, again=(Unreachable, NotReady)) as asking:
        asking.is_running()
        running.kill()
        with served("--workers", workers, port=int(url.rpartition(":")[2])) as (_, again):
            assert again == url
            asking.is_running()
    assert asking.wrong == []
    assert asking.n_again > 0 or workers > 1  # processes that are left alone answer until they have ended

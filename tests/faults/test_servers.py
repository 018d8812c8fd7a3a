"""A server in a process of its own that is killed; replaced files are in ``runtimes/test_serve``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.commands import Running, command, started
from tests.faults.conftest import QUERIES
from tests.retrievers.server.serving import ask, wait_until
from wikidx.retrievers.base import Rankings
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.errors import NotReady, Unreachable

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


def test_a_server_that_is_killed_and_started_again_has_lost_nothing(home: Path, whole_home: Path) -> None:
    """A client with an open connection asks again until the new server answers, at the same address, as the old one did."""
    for part in ("passages", "indexes/bm25"):
        shutil.copytree(whole_home / "mine" / part, home / "mine" / part)
    with served("--workers", 2) as (running, url), RemoteSearcher(url) as remote:
        before = remote.search([*QUERIES])
        running.kill()
        with served("--workers", 2, port=int(url.rpartition(":")[2])) as (_, again):
            assert again == url
            wait_until(lambda: answers(remote) == before, 60)


def answers(remote: RemoteSearcher) -> Rankings | None:
    """Return what a search finds; None if no server answers, or one that is still opening."""
    try:
        return remote.search([*QUERIES])
    except (Unreachable, NotReady):
        return None

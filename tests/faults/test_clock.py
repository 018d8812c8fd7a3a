"""Clocks that jump by hours, and files with arbitrary times: no decision of idx depends on the time of day."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, command, idx, started, wait_for_end
from tests.faults.conftest import QUERIES, build_command, check_whole, path_of
from tests.faults.test_servers import served
from tests.retrievers.server.serving import ask, wait_until
from wikidx.base.artifacts.building import staging_path
from wikidx.base.artifacts.manifest import MANIFEST
from wikidx.indexer.vectors.file import finished_ranges

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full

HOURS = 3600.0


def under_a_jumping_clock(work: Callable[..., object], *arguments: object) -> None:
    """Run work while every reading of the clock gives another hour, earlier or later."""
    chance, real = random.Random(1), time.time
    time.time = lambda: real() + chance.uniform(-12, 12) * HOURS
    work(*arguments)


def scatter_times(home: Path) -> None:
    """Set the times of all files at random: from 1970 to tomorrow."""
    chance = random.Random(2)
    for file in home.rglob("*"):
        at = chance.choice((0.0, time.time() - 5 * HOURS, time.time() + 20 * HOURS))
        os.utime(file, (at, at))


def test_a_build_works_under_a_clock_that_jumps(home: Path, whole_home: Path, source: Path) -> None:
    building = build_command(source, "ivf")
    with started(under_a_jumping_clock, command, *building) as running:
        wait_until(lambda: len(finished_ranges(staging_path(path_of(ENCODER)))) > 1, 300)
        running.kill()
    scatter_times(home)
    assert wait_for_end(under_a_jumping_clock, command, *building).status == 0
    check_whole(whole_home, "bm25", ENCODER)
    scatter_times(home)
    assert idx("check", "mine").status == 0


def test_deadlines_hold_and_a_replaced_index_is_reported_under_a_clock_that_jumps(home: Path, whole_home: Path) -> None:
    for part in ("passages", "indexes/bm25"):
        shutil.copytree(whole_home / "mine" / part, home / "mine" / part)
    scatter_times(home)
    with served(work=(under_a_jumping_clock, command)) as (_, url):
        answers = [ask(url, "/v1/search", {"queries": [*QUERIES], "timeout_s": 20}) for _ in range(20)]
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert wait_for_end(under_a_jumping_clock, command, "build", "mine", "--bm25", "--force").status == 0
        manifest = whole_home / "mine" / "indexes" / "bm25" / MANIFEST
        os.utime(path_of("bm25") / MANIFEST, ns=(0, manifest.stat().st_mtime_ns))  # another file of the same time
        (state,) = ask(url, "/v1/indexes").json["corpora"]
        assert [index["replaced"] for index in state["indexes"]] == [True]

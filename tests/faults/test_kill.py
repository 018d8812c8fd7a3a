"""``idx build`` of a whole corpus, killed with SIGKILL at random moments, and repeated."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.faults.commands import ENCODER, command, idx, started
from tests.faults.conftest import QUERIES, build_command, check_whole, path_of
from tests.retrievers.retrieving import at_home
from wikidx.base.artifacts.home import corpus_path
from wikidx.base.artifacts.manifest import is_finished

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full

KINDS = ("ivf", "hnsw")
MADE = tuple(f"{ENCODER}-{kind}" for kind in KINDS)
PARTS = ("passages", "bm25", ENCODER, *MADE)


@pytest.fixture(scope="module")
def answers(whole_home: Path) -> dict[str, str]:
    """Search output on the undisturbed corpus, for each retriever."""
    with at_home(whole_home):
        return {part: idx("search", "mine", *QUERIES, "--json", "--retriever", part).out for part in PARTS[1:]}


def says_that_it_is_not_built(error: str) -> bool:
    """Return whether an error says that something is not built; a build killed before it created a folder leaves the corpus unknown."""
    return "idx build" in error or ("unknown corpus 'mine'" in error and not corpus_path("mine").exists())


def check_nothing_half_made_counts(answers: dict[str, str]) -> None:
    """Check that each part is either finished and correct or absent, according to ``list``, ``check`` and ``search``."""
    finished = [part for part in PARTS if is_finished(path_of(part))]
    listed = {corpus["name"]: corpus["built"] for corpus in json.loads(idx("list", "--json").out)["corpora"]}
    assert {part["name"]: part["problem"] for part in listed.get("mine", ())} == dict.fromkeys(finished)
    checked = idx("check", "mine", "--json")
    if finished:
        assert (checked.status, json.loads(checked.out)["problems"]) == (0, {part: [] for part in finished}), checked
    else:
        assert says_that_it_is_not_built(checked.error)
    for retriever, answer in answers.items():
        wait_for_end = idx("search", "mine", *QUERIES, "--json", "--retriever", retriever)
        if retriever not in finished:
            assert says_that_it_is_not_built(wait_for_end.error)
        elif retriever in MADE:
            assert len(json.loads(wait_for_end.out)["passages"]) == 10
        else:
            assert wait_for_end.out == answer


@pytest.mark.parametrize("n_kills", [4, pytest.param(40, marks=pytest.mark.exhaustive)])  # five minutes
def test_a_build_that_is_killed_resumes(n_kills: int, source: Path, whole_home: Path, home: Path, answers: dict[str, str]) -> None:
    """It is killed at moments spread over its whole duration."""
    chance = random.Random(11)
    building = build_command(source, *KINDS)
    begun = time.monotonic()
    assert idx(*building).status == 0
    duration_s = time.monotonic() - begun
    delays = [(number + chance.random()) * duration_s / n_kills for number in range(n_kills)]
    chance.shuffle(delays)
    n_killed = 0
    shutil.rmtree(home / "mine")
    while n_killed < n_kills:
        with started(command, *building) as running:
            running.process.join(delays[n_killed])
            status = running.kill()
        if status == -signal.SIGKILL:
            n_killed += 1
            check_nothing_half_made_counts(answers)
        else:
            assert status == 0
            check_whole(whole_home, *PARTS)
            shutil.rmtree(home / "mine")
            delays[n_killed] *= chance.random()  # the rest of a build takes less
    assert idx(*building).status == 0
    check_whole(whole_home, *PARTS)

"""``idx build`` of a whole corpus, killed with SIGKILL at random moments and around the boundaries of its steps, and repeated."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.faults import conftest
from tests.faults.commands import ENCODER, Running, command, idx, started
from tests.faults.conftest import PARTIAL, QUERIES, build_command, path_of
from wikidx.base.artifacts.building import INTERMEDIATE, staging_path
from wikidx.base.artifacts.home import corpus_path
from wikidx.base.artifacts.manifest import MANIFEST, is_finished
from wikidx.corpora.build import open_store
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import VECTORS

pytestmark = pytest.mark.slow  # processes that are killed and started again: make test-full

KINDS = ("ivf", "hnsw")
MADE = tuple(f"{ENCODER}-{kind}" for kind in KINDS)
PARTS = ("passages", "bm25", ENCODER, *MADE)
_POLL_S = 0.0005


def boundaries(part: str) -> list[Callable[[], bool]]:
    """Conditions that hold once a part has been started, has a piece, is sealed, and has its final name."""
    target, staging = path_of(part), staging_path(path_of(part))
    return [
        staging.exists,
        lambda: any(file.name not in ("recipe.json", INTERMEDIATE) for file in (*staging.glob("*"), *staging.glob(f"{INTERMEDIATE}/*"))),
        (staging / MANIFEST).exists,
        lambda: is_finished(target),
    ]


def kill_at_boundary(running: Running, chance: random.Random) -> int:
    """Kill a build as soon as a part that is not finished yet reaches a boundary, or a moment later."""
    is_reached = chance.choice(boundaries(chance.choice([part for part in PARTS if not is_finished(path_of(part))])))
    while running.process.exitcode is None and not is_reached():
        time.sleep(_POLL_S)
    time.sleep(chance.choice((0.0, chance.uniform(0, 0.01))))
    return running.kill()


@pytest.fixture(scope="module")
def answers(whole_home: Path) -> dict[str, str]:
    """Search output on the undisturbed corpus, for each retriever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(whole_home))
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


def recall(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """The share of the true ten nearest that an index finds, for every fourth vector of the corpus."""
    monkeypatch.setenv("IDX_HOME", str(home))
    store = open_store("mine")
    queries = np.load(index_ref("mine", ENCODER).path / VECTORS)[::4]
    found, true = (open_vector_index("mine", opened, store).search(queries, 10).rows.tolist() for opened in (name, ENCODER))
    return float(np.mean([len({*some} & {*wanted}) / 10 for some, wanted in zip(found, true, strict=True)]))


def check_as_promised(whole_home: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an interrupted build ends in the same artefacts as an undisturbed one.

    Vectors and postings have the same bytes, the store the same fingerprint, trained and graph indexes the same count and the same recall
    within 0.005; no other files remain.
    """
    for part, folder in [(part, path_of(part).relative_to(home)) for part in PARTS]:
        ours, theirs = (json.loads((of / folder / MANIFEST).read_bytes()) for of in (home, whole_home))
        assert (ours["fingerprint"], ours["counts"]) == (theirs["fingerprint"], theirs["counts"])
        if part in ("bm25", ENCODER):
            assert ours["files"] == theirs["files"]
        elif part in MADE:
            assert abs(recall(home, part, monkeypatch) - recall(whole_home, part, monkeypatch)) <= 0.005
        else:
            assert ours["files"]["text_keys.u64"] == theirs["files"]["text_keys.u64"]
    monkeypatch.setenv("IDX_HOME", str(home))
    assert [file for file in home.rglob(".*") if file.name not in (".locks", ".checksums")] == []


def killed_and_resumed(
    n_kills: int, source: Path, homes: tuple[Path, Path], answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Build repeatedly, killed this many times: alternately at a boundary and at moments spread over the whole duration."""
    chance = random.Random(11)
    whole_home, home = homes
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
            if n_killed % 2:
                status = kill_at_boundary(running, chance)
            else:
                running.process.join(delays[n_killed])
                status = running.kill()
        if status == -signal.SIGKILL:
            n_killed += 1
            check_nothing_half_made_counts(answers)
        else:
            assert status == 0
            check_as_promised(whole_home, home, monkeypatch)
            shutil.rmtree(home / "mine")
            delays[n_killed] *= chance.random()  # the rest of a build takes less
    assert idx(*building).status == 0
    check_as_promised(whole_home, home, monkeypatch)


def test_a_build_that_is_killed_resumes(
    source: Path, whole_home: Path, home: Path, answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_and_resumed(4, source, (whole_home, home), answers, monkeypatch)


@pytest.mark.exhaustive  # five minutes
def test_a_build_that_is_killed_forty_times_resumes(
    source: Path, whole_home: Path, home: Path, answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_and_resumed(40, source, (whole_home, home), answers, monkeypatch)


def test_an_index_is_served_until_its_replacement_is_whole(
    whole_home: Path, home: Path, answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while replacing an index: before, during and after the exchange of names, one index answers."""
    others = [f"{ENCODER}-{kind}" for kind in conftest.KINDS if kind not in KINDS] + [f"{PARTIAL}*"]
    shutil.copytree(whole_home / "mine", home / "mine", ignore=shutil.ignore_patterns(*others))
    chance = random.Random(3)
    staging = staging_path(path_of("bm25"))
    points: list[Callable[[], bool]] = [staging.exists, (staging / MANIFEST).exists, lambda: not staging.exists()]
    for is_reached in points:
        with started(command, "build", "mine", "--bm25", "--force") as running:
            while running.process.exitcode is None and not staging.exists():
                time.sleep(_POLL_S)
            while running.process.exitcode is None and not is_reached():
                time.sleep(_POLL_S)
            time.sleep(chance.uniform(0, 0.002))
            running.kill()
        check_nothing_half_made_counts(answers)
    assert idx("build", "mine", "--bm25", "--force").status == 0
    check_as_promised(whole_home, home, monkeypatch)

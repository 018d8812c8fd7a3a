"""The measurement at full size: how a build ended, its interruption, and its estimates beside what was measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.full_size.__main__ import deviation_rows
from benchmarks.full_size.asking import open_limited, serve_limited
from benchmarks.full_size.building import (
    ARTIFACTS,
    ArtifactFigures,
    Run,
    build,
    build_interrupted,
    build_limited,
    bytes_by_file,
    compare,
    estimate,
    limited,
    outcome,
)
from wikidx.base.errors import IdxError

_TAKE = "kept = bytearray(300_000_000)"
N = 30_000


@pytest.mark.parametrize(
    ("status", "errors", "expected"),
    [
        (0, "as ever\n", "finished"),
        (2, "a warning\nneeds 2 GB, 1 GB is free\n", "refused: needs 2 GB, 1 GB is free"),
        (1, "Traceback (most recent call last):\nMemoryError\n", "failed with status 1: MemoryError"),
        (1, "", "failed with status 1: "),
        (-9, "", "killed by signal 9"),
    ],
)
def test_ends_are_told_apart(status: int, errors: str, expected: str) -> None:
    assert outcome(status, errors) == expected


def test_the_limit_is_on_private_memory() -> None:
    for limit, is_enough in ((None, True), (10**9, True), (2 * 10**8, False)):
        ran = subprocess.run(limited(["-c", _TAKE], limit), capture_output=True, text=True, check=False)
        assert (ran.returncode == 0) == is_enough, ran.stderr
        assert is_enough or "MemoryError" in ran.stderr


def test_a_run_takes_as_long_as_its_artifacts_and_as_much_as_the_largest() -> None:
    run = Run(artifacts={"passages": ArtifactFigures(2.0, 30, 40), "bm25": ArtifactFigures(3.0, 20, 50)})
    figures = run.figures()
    assert (figures["s"], figures["own"], figures["resident"]) == (5.0, 30, 50)
    assert figures["bm25_s"] == 3.0


def test_deviations_are_those_of_what_was_measured() -> None:
    built = {"disk": 200, "s": 6.0, "passages_own": 5, "passages_s": 2.0, "bm25_own": 10, "bm25_s": 4.0}
    expected = {name: {"disk": 80.0, "own": 10.0, "s": 4.0} for name in ARTIFACTS}
    rows = {(row["artifact"], row["figure"]): row["deviation %"] for row in deviation_rows({"estimate": expected, "build": built})}
    assert rows["passages", "own"] == pytest.approx(-50)
    assert rows["bm25", "s"] == pytest.approx(0)
    assert rows["all", "disk"] == pytest.approx(25)
    assert rows["all", "s"] == pytest.approx(-25)
    assert not list(deviation_rows({"estimate": expected}))


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of passages that takes some seconds to build."""
    file, rng = tmp_path_factory.mktemp("file") / "passages.jsonl", np.random.default_rng(0)
    words = np.array([f"w{n}" for n in range(20_000)])
    numbers = np.minimum(rng.zipf(1.2, (N, 80)), len(words)) - 1
    with file.open("w") as opened:
        for row, text in enumerate(numbers):
            opened.write(json.dumps({"id": str(row), "title": "", "text": " ".join(words[text])}) + "\n")
    return file


@pytest.mark.slow  # half a minute
def test_an_interrupted_build_ends_with_the_same_contents(passages: Path, tmp_path: Path) -> None:
    whole = build(passages, tmp_path / "home")
    assert whole["s"] == pytest.approx(whole["passages_s"] + whole["bm25_s"])
    assert whole["files"] == bytes_by_file(tmp_path / "home")
    assert whole["disk"] > 0
    assert min(whole["passages_own"], whole["bm25_own"]) > 2e7
    expected = estimate(passages)
    assert expected.keys() == ARTIFACTS.keys()
    found = build_interrupted(passages, tmp_path / "other", expected)
    assert len(found["runs_s"]) == 3
    assert found["s"] == pytest.approx(sum(found["runs_s"]))
    compared = compare(tmp_path / "home", tmp_path / "other")
    assert compared["compared"] > 10
    assert compared["same_contents"]
    assert {name.split("/")[0] for name in compared["different"]} <= {"passages"}  # pages of the database lie in another order
    with pytest.raises(IdxError, match="was not interrupted in 'passages'"):
        build_interrupted(passages, tmp_path / "other", expected)  # it is built


@pytest.mark.slow  # half a minute
def test_a_command_with_too_little_memory_ends(passages: Path, tmp_path: Path) -> None:
    build(passages, tmp_path / "home")
    for limit, is_enough in ((10**9, True), (10**8, False)):
        for ask in (open_limited, serve_limited):
            assert (ask(tmp_path, "w1 w2", limit)["outcome"] == "finished") == is_enough


@pytest.mark.slow  # ten seconds
def test_a_build_with_too_little_memory_leaves_nothing(passages: Path, tmp_path: Path) -> None:
    found = build_limited(passages, tmp_path / "home", 30_000_000)
    assert found["outcome"].startswith(("refused", "failed"))
    assert not (tmp_path / "home").exists()

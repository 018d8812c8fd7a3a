"""Paths that the user names and that are no files, or too large ones: no small file hangs or fills the memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.retrievers.pipelines.saved import read_pipeline
from wikidx.runtimes.execution.identity import model_identity
from wikidx.runtimes.experiments.files import read_experiment
from wikidx.runtimes.llms.naming import parse_spec
from wikidx.runtimes.llms.scripted import read_script
from wikidx.runtimes.questions import find_questions
from wikidx.runtimes.questions.queries import read_queries

TOML: list[Callable[[Path], Any]] = [read_pipeline, lambda path: read_experiment(str(path))]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Fail a test that hangs."""

    def fail(number: int, frame: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("read", [*TOML, read_script, lambda path: model_identity(parse_spec(f"scripted:{path}"), "cpu")])
def test_pipes_and_devices_are_refused(read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the paths of tests may be longer than what a message shows
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "device.toml"):
        with pytest.raises((InputError, UnknownNameError), match=name):
            read(Path(name))


@pytest.mark.parametrize("read", TOML)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("#" * 1_000_001, "has more than 1,000,000 bytes"),
        ("a" + ".a" * 20_000 + " = 1", "a name of more than 100 parts"),
        ("a = " + "[" * 20_000, "is not TOML"),
    ],
)
def test_a_file_in_toml_has_a_limit(read: Callable[[Path], object], content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(content)
    with pytest.raises(InputError, match=reason):
        read(tmp_path / "some.toml")


@pytest.mark.parametrize("read", [read_queries, lambda path: find_questions(str(path))])
def test_a_file_without_a_size_is_not_read(read: Callable[[Path], object]) -> None:
    """Some of them wait for ever, as the kernel's log does."""
    with pytest.raises(InputError, match="/proc/version is empty"):
        read(Path("/proc/version"))

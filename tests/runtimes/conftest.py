"""Fixtures for the commands that run methods: the sample corpus with BM25, built once, and scripts."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from wikidx.base.registry import load
from wikidx.corpora import CORPORA
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.indexer.build import build_index
from wikidx.runtimes.cli import main

ANIMALS = [
    ("a", "Fox", "The red fox digs a den."),
    ("b", "Whale", "The blue whale sings."),
    ("c", "Sea", "Whales and a red ship in the blue sea."),
]


@pytest.fixture(scope="session")
def built_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder))
        build_store(load("corpus", "sample", CORPORA), StoreOptions())
        build_index("sample", "bm25", open_store("sample"))
    return folder


@pytest.fixture(scope="session")
def built_animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of three passages, and a home in which the command has built them; to be copied."""
    folder = tmp_path_factory.mktemp("animals")
    records = ({"id": name, "title": title, "text": text} for name, title, text in ANIMALS)
    (folder / "animals.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setenv("IDX_HOME", str(folder / "home"))
        patch.setattr(sys, "argv", ["idx", "build", str(folder / "animals.jsonl")])
        main()
    return folder


@pytest.fixture
def animals(built_animals: Path, home: Path) -> Path:
    """Give a test's home the corpus 'animals', and return the file that it was built from."""
    shutil.copytree(built_animals / "home", home)
    return built_animals / "animals.jsonl"


@pytest.fixture
def sample_home(built_sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a test have the home in which the sample corpus is built; it is shared, so not to be changed."""
    monkeypatch.setenv("IDX_HOME", str(built_sample))
    return built_sample


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a script, each answer an entry of it, and return the model's name."""
    n = 0

    def written(*entries: dict[str, object]) -> str:
        nonlocal n
        n += 1
        file = tmp_path / f"answers{n}.jsonl"
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
        return f"scripted:{file}"

    return written

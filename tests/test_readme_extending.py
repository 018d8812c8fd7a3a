"""The documentation adds a protocol: its example is applied to a copy of the packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.readme_blocks import PAGES, blocks, shows_plug_in

Idx = Callable[..., str]

EXAMPLES = [block for page in PAGES for block in blocks(page) if "." in block.file and not shows_plug_in(block)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the documentation's examples behind its tables."""
    root = tmp_path_factory.mktemp("copy")
    for package in ("corpora", "indexer", "retrievers", "runtimes"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "wikidx", root / "wikidx", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for block in EXAMPLES:
        with (root / block.file).open("a", encoding="utf-8") as file:
            file.write(f"\n{block.text}")
    return root


@pytest.fixture(scope="module")
def idx(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Idx:
    """The command of the copy, with an empty home."""
    home = tmp_path_factory.mktemp("home")
    # New sources have new kernels; on so few passages Python is faster than compiling them.
    environment = {**os.environ, "PYTHONPATH": str(copy), "IDX_HOME": str(home), "NUMBA_DISABLE_JIT": "1"}

    def run(*arguments: object) -> str:
        command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_each_kind_of_example_is_there() -> None:
    assert {block.file for block in EXAMPLES} == {"runtimes/questions/protocols.toml"}


@pytest.mark.slow
def test_the_protocol_chooses_questions(idx: Idx) -> None:
    shown = json.loads(idx("run", "direct", "--questions", "sample", "--protocol", "mine-sample", "--out", "runs", "--dry-run", "--json"))
    assert shown["questions"] == 20
    assert shown["settings"]["questions"]["protocol"] == "mine-sample"

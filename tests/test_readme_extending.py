"""The documentation adds a method and a protocol: its examples are applied to a copy of the packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.readme_blocks import PAGES, Block, blocks

Idx = Callable[..., str]

NOTES = [
    {"id": "1", "title": "Mercury", "text": "Mercury is liquid at room temperature."},
    {"id": "2", "title": "Gold", "text": "Gold has the symbol Au."},
    {"id": "3", "title": "Iron", "text": "Iron rusts."},
]

EXAMPLES = [block for page in PAGES for block in blocks(page) if "/" in block.file]


def write(block: Block, root: Path) -> None:
    """Write an example's file, or put its line behind the first one of the table."""
    path = root / block.file
    if not block.table:
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return
    source = path.read_text(encoding="utf-8")
    assert block.text.count("\n") == 1
    opening = re.search(rf"^{block.table}\b.*[{{(].*\n", source, flags=re.MULTILINE)
    assert opening, f"{block.file} has no table {block.table}"
    path.write_text(source[: opening.end()] + block.text + source[opening.end() :], encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with all examples of the documentation added."""
    root = tmp_path_factory.mktemp("copy")
    for package in ("corpora", "indexer", "retrievers", "runtimes"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "wikidx", root / "wikidx", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for block in EXAMPLES:
        write(block, root)
    return root


@pytest.fixture(scope="module")
def idx(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Idx:
    """The command of the copy, with a home in which a corpus is built."""
    home = tmp_path_factory.mktemp("home")
    # New sources have new kernels; on so few passages Python is faster than compiling them.
    environment = {**os.environ, "PYTHONPATH": str(copy), "IDX_HOME": str(home), "NUMBA_DISABLE_JIT": "1"}

    def run(*arguments: object) -> str:
        command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    (home / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in NOTES))
    run("build", "notes.jsonl")
    return run


def test_each_kind_of_example_is_there() -> None:
    assert {block.file for block in EXAMPLES if block.table} == {"runtimes/methods/__init__.py", "runtimes/questions/protocols.py"}


@pytest.mark.parametrize("file", sorted({block.file for block in EXAMPLES if block.file.endswith(".py")}))
def test_a_file_with_its_example_is_python(copy: Path, file: str) -> None:
    compile((copy / file).read_text(encoding="utf-8"), file, "exec")


@pytest.mark.slow
def test_the_method_answers_by_a_majority(idx: Idx, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"texts": ["iron", "mercury", "mercury "]}))
    options = ("--corpus", "notes", "--llm", f"scripted:{script}", "--set", "votes=3", "--json")
    answered = json.loads(idx("ask", "vote", "Which metal is liquid?", *options))
    assert (answered["answer"], answered["detail"]) == ("mercury", {"votes": 2})
    assert [passage["id"] for passage in answered["passages"]] == ["1"]
    assert "vote" in idx("ask")


@pytest.mark.slow
def test_the_protocol_chooses_questions(idx: Idx) -> None:
    shown = json.loads(idx("run", "direct", "--questions", "sample", "--protocol", "mine-sample", "--out", "runs", "--dry-run", "--json"))
    assert shown["questions"] == 20
    assert shown["settings"]["questions"]["protocol"] == "mine-sample"

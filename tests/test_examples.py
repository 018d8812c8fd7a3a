"""Scripts and notebooks of ``examples/`` run, and find what they are about."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.retrievers.server.serving import serving
from wikidx.retrievers.build_and_open import build
from wikidx.retrievers.server.settings import Settings

FOLDER = ROOT / "examples"
PRINTED = {
    "search_texts.py": ["bm25         nothing", "minilm       Employees apply for annual leave"],
    "search_a_file.py": ["2 passages", "bhutan: Bhutan", "Lima is the capital of Peru."],
    "query_groups.py": ["1  Nile (river): rank 1 of minilm for 'Where does the river of Egypt end?'", "1  Mercury (element)"],
    "write_a_trec_run.py": ["a gold passage is first for 3 of 3 questions"],
    "first_steps.ipynb": ["planet-jupiter#0 Jupiter", "rank 1 of bm25 for 'country where the Nile ends'"],
    "compare_retrievers.ipynb": [],
    "documents.ipynb": ["travel.md#1 | Travel > Expenses", "2 passages", "travel.md | Travel > Booking"],
}

pytestmark = pytest.mark.slow  # an encoder: ten seconds each


@pytest.fixture(scope="module")
def home(embedded_sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples, with a data home."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(embedded_sample, folder / "idx")
    return folder


def run(file: Path, home: Path, *arguments: str) -> str:
    """Return what a script, or the code of a notebook's cells, prints."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        source = "\n".join("".join(cell["source"]) for cell in json.loads(source)["cells"] if cell["cell_type"] == "code")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IDX_HOME": str(home / "idx")}
    command = [sys.executable, "-c", source, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_an_example_runs(name: str, printed: Sequence[str], home: Path) -> None:
    said = run(FOLDER / name, home)
    assert not [text for text in printed if text not in said], said


def test_the_example_of_a_server_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(home / "idx"))
    build("sample").close()
    with serving(Settings(corpora=("sample",), port=0)) as url:
        said = run(FOLDER / "ask_a_server.py", home, url)
    assert "planet with the Great Red Spot: Jupiter" in said


def test_scripts_import_what_the_reference_calls_stable() -> None:
    assert not [file.name for file in FOLDER.glob("*.py") if re.search(r"^(from|import) wikidx\.", file.read_text(), re.MULTILINE)]


def test_the_command_that_installs_is_that_of_a_checkout() -> None:
    installs = re.findall(r"`pip install ([^`]*)`", (FOLDER / "README.md").read_text())
    assert installs == ["--constraint constraints.txt --editable '.[dense,documents,pandas]'"]


def test_each_example_is_run() -> None:
    assert {file.name for file in FOLDER.iterdir()} - {"README.md"} == {*PRINTED, "ask_a_server.py"}


def test_the_outputs_of_a_notebook_are_those_of_a_run_from_top_to_bottom() -> None:
    for file in FOLDER.glob("*.ipynb"):
        cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]

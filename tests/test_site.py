"""The documentation site: built as ``make check`` does, with pages from outside ``docs/`` and a reference of all commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.retrievers.adapters.test_missing import ADAPTERS
from wikidx import __all__
from wikidx.runtimes.cli.commands import COMMANDS

LINKED = ("wikidx", "CHANGELOG.md", "benchmarks", "examples")


def build(root: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, check=False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pages, which tests may change, and links to what they need."""
    root = tmp_path_factory.mktemp("site")
    for name in LINKED:
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", root / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", root)
    (root / "docs" / "install.md").write_text(
        "# Install\n\n```console\n$ idx list\n```\n\n[made](../Makefile), [measured](../benchmarks/README.md#measurements)\n"
    )
    with (root / "docs" / "design.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](how-to/nowhere.md)\n")
    return root


@pytest.fixture(scope="module")
def built(sources: Path) -> subprocess.CompletedProcess[str]:
    """The site, which is written although it has a broken link."""
    return build(sources)


@pytest.fixture(scope="module")
def site(sources: Path, built: subprocess.CompletedProcess[str]) -> Path:
    return sources / "build" / "site"


def test_the_reference_has_every_command_with_its_options(site: Path) -> None:
    text = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"<code>idx {name}</code>" not in text]
    assert "<code>--rerank-depth N</code>" in text


def test_the_python_reference_shows_examples_as_code(site: Path) -> None:
    text = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    assert 'id="wikidx.open_searcher"' in text
    assert not [name for name in ADAPTERS if f'id="wikidx.retrievers.adapters.{name}.Retriever"' not in text]
    assert not [name for name in __all__ if f'id="wikidx.{name}"' not in text]
    assert "<blockquote>" not in text  # as Markdown reads a prompt


def test_links_lead_to_pages_from_outside_and_other_files_keep_their_name_only(site: Path) -> None:
    text = (site / "install" / "index.html").read_text(encoding="utf-8")
    assert '<p>made, <a href="../benchmarks/#measurements">measured</a></p>' in text
    assert (site / "benchmarks" / "charts" / "bm25.png").exists()


def test_commands_can_be_copied_without_a_prompt(site: Path) -> None:
    text = (site / "install" / "index.html").read_text(encoding="utf-8")
    article = text.partition("<article")[2].partition("</article>")[0]
    assert re.sub("<[^>]*>", "", article).count("idx list") == 1
    assert "$" not in article


def test_a_broken_link_is_an_error_and_there_is_no_other(built: subprocess.CompletedProcess[str]) -> None:
    assert built.returncode != 0
    (said,) = [line for line in built.stderr.splitlines() if line.startswith("WARNING")]
    assert "how-to/nowhere.md" in said

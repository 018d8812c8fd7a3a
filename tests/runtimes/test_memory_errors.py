"""A lack of memory in any command."""

from __future__ import annotations

import re

import pytest

from wikidx.runtimes.cli import main


@pytest.mark.parametrize("cause", [MemoryError(), RuntimeError("can't start new thread")])
def test_too_little_memory_is_one_line(cause: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(prog_name: str) -> None:
        raise cause

    monkeypatch.setattr("wikidx.runtimes.cli.commands.app", fail)
    with pytest.raises(SystemExit, match="2"):
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: not enough memory: this process may use [\d.]+ GB, of which [\d.]+ [GM]B are free now; .*", line)


def test_other_errors_of_a_library_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prog_name: str) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("wikidx.runtimes.cli.commands.app", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main()

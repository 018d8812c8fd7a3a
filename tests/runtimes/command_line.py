"""The command line run in this process, where a fixture can reach what it imports."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from wikidx.runtimes.cli import main


def without_times(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prediction without what depends on time: its timing, and seconds and reuse of its steps."""
    steps = [{name: value for name, value in step.items() if name not in ("seconds", "reused")} for step in record.get("steps", ())]
    return {name: value for name, value in record.items() if name not in ("timing", "steps")} | ({"steps": steps} if steps else {})


class Command:
    """Runs ``idx`` with arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, status: int = 0) -> str:
        """Return the output or, for a command that must fail, the error."""
        self._monkeypatch.setattr(sys, "argv", ["idx", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        said = self._capsys.readouterr()
        assert stopped.value.code == status, said.err
        return said.out if status == 0 else said.err.splitlines()[-1]

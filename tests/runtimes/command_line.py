"""The command line run in this process, where a fixture can reach what it imports."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from wikidx.runtimes.cli import main

IDX = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()"]
"""The beginning of a command that runs in a process of its own."""


def without_times(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prediction without what depends on time: its timing, and seconds and reuse of its steps."""
    steps = [{name: value for name, value in step.items() if name not in ("seconds", "reused")} for step in record.get("steps", ())]
    return {name: value for name, value in record.items() if name not in ("timing", "steps")} | ({"steps": steps} if steps else {})


class Command:
    """Runs ``idx`` with arguments; ``out`` and ``err`` are what the last command has written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object, status: int = 0) -> str:
        """Return the output or, for a command that must fail, the error."""
        self._monkeypatch.setattr(sys, "argv", ["idx", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        self.out, self.err = self._capsys.readouterr()
        assert stopped.value.code == status, self.err
        return self.out if status == 0 else self.err.rstrip("\n").rpartition("\n")[2]

    def json(self, *arguments: object, status: int = 0) -> Any:  # noqa: ANN401 - JSON
        """Return the output for programs."""
        self(*arguments, "--json", status=status)
        return json.loads(self.out)

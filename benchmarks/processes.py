"""Child processes of benchmarks: Python with a dialogue in lines of JSON, and ``idx`` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wikidx.base.errors import IdxError

ROOT = Path(__file__).parents[1]
IDX = ("-c", "from wikidx.runtimes.cli import main; main()")
NAME = "measured"  # name of a benchmark's corpus in the data home of its folder


def use_data_home(folder: Path) -> None:
    """Set this process's data home, and that of its future children, to the one in a folder."""
    os.environ["IDX_HOME"] = str(folder / "home")


def idx(*arguments: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of idx.

    Raises:
        IdxError: it failed.
    """
    ran = subprocess.run([sys.executable, *IDX, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise IdxError(f"idx {' '.join(arguments)} ended with status {ran.returncode}: {ran.stderr.strip()}")
    return ran


class Process:
    """A Python process that ends with the block."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdout: int = subprocess.PIPE,
        stderr: int | None = None,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *arguments], cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        with suppress(BrokenPipeError):
            self.process.communicate()

    def exchange(self, order: object) -> Any:  # noqa: ANN401 - from JSON
        """Write a request as a line of JSON and return the answer."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # a process that is gone will not answer
                self.process.stdin.write(json.dumps(order) + "\n")
                self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:  # noqa: ANN401 - from JSON
        """Return the next line of JSON."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise IdxError(f"{self.process.args!r} has ended with status {self.process.wait()}: see above")
        return json.loads(line)

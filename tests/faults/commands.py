"""``idx`` in processes of its own that start within milliseconds, forked from one with all imports done.

A kill at a random moment then hits work rather than seconds of imports. Units of work are small there, so that a small corpus has many.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from wikidx.base.errors import IdxError
from wikidx.runtimes.cli import main
from wikidx.runtimes.cli.screen import fail

ENCODER = "contriever"

_context = get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.preloaded"])


class Finished(NamedTuple):
    """The outcome of a command: its output and its exit status, which is minus the signal's number if a signal ended it."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one-line error of a refused command."""
        assert self.status == 2, self
        assert "Traceback" not in self.err, self.err
        last = self.err.splitlines()[-1]
        assert last.startswith("error: "), self.err
        return last.removeprefix("error: ")


@dataclass(frozen=True)
class Running:
    """A running or finished command."""

    process: BaseProcess
    output: Path

    def wait(self) -> Finished:
        """Wait for its end."""
        self.process.join(240)
        assert self.process.exitcode is not None, "it has not ended"
        return Finished(self.process.exitcode, *((self.output / name).read_text() for name in ("out", "err")))

    def kill(self) -> int:
        """Kill it with SIGKILL; return its exit status, which differs if it had already ended."""
        self.process.kill()
        return self.wait().status


@contextmanager
def started(work: Callable[..., object], *arguments: object) -> Iterator[Running]:
    """Start work in a process of its own, with this test's environment and folder; it is killed if the test does not wait for it."""
    output = Path(tempfile.mkdtemp(prefix="idx-"))
    for name in ("out", "err"):  # for a process that is killed before it prints anything
        (output / name).touch()
    process = _context.Process(target=_run, args=(work, arguments, dict(os.environ), Path.cwd(), output))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # for the one that they are forked from: sums of one thread are the same every time
        process.start()
    try:
        yield Running(process, output)
    finally:
        process.kill()
        process.join()
        process.close()
        shutil.rmtree(output)


def command(*arguments: object) -> None:
    """Be ``idx`` with these arguments."""
    sys.argv = ["idx", *map(str, arguments)]
    main()


def wait_for_end(work: Callable[..., object], *arguments: object) -> Finished:
    """Run work to its end and return the outcome."""
    with started(work, *arguments) as running:
        return running.wait()


def idx(*arguments: object) -> Finished:
    """Run ``idx`` to its end."""
    return wait_for_end(command, *arguments)


def _run(work: Callable[..., object], arguments: tuple[object, ...], environment: dict[str, str], folder: Path, output: Path) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(output / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, descriptor)
        os.close(file)
    try:
        work(*arguments)
    except IdxError as error:
        fail(str(error))

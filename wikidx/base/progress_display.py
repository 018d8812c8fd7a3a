"""Display of progress on standard error, for the command line and for builds from Python."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import escape_controls
from .progress import Progress, Step, format_bytes

if TYPE_CHECKING:
    from rich.progress import TaskID

_LOG_EVERY_S = 10.0
_MIN_DONE = 16  # units before the remaining time is estimated


def format_duration(seconds: float) -> str:
    """Return a human-readable duration."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


@contextlib.contextmanager
def show_steps() -> Iterator[Step]:
    """Yield a function (step's name, unit) -> progress callback; the unit "B" is for bytes.

    On a terminal, progress is shown as bars; otherwise as lines, at most one in ten seconds. A step shows nothing before its first report.
    """
    if not sys.stderr.isatty():
        yield _log_step
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def show_bar(name: str, unit: str) -> Progress:
            state = _State(unit)
            tasks: list[TaskID] = []

            def update(done: int, total: int | None) -> None:
                if not tasks:
                    tasks.append(bars.add_task(escape_controls(name), total=None, state=""))
                bars.update(tasks[0], completed=done, total=total, state=state.line(done, total))

            return update

        yield show_bar


def _log_step(name: str, unit: str) -> Progress:
    """Return a progress callback that writes a line to standard error, at most every ten seconds."""
    state = _State(unit)
    last = time.monotonic()

    def log(done: int, total: int | None) -> None:
        nonlocal last
        line = f"{name}: {state.line(done, total)}"
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            sys.stderr.write(escape_controls(line) + "\n")

    return log


class _State:
    """Progress of a step as text.

    The rate is measured from the second batch on: before the first report there may be progress of an interrupted run, and the first batch
    includes loading and compiling.
    """

    def __init__(self, unit: str) -> None:
        self._text: Callable[[float], str] = format_bytes if unit == "B" else "{:,.0f}".format
        self._unit = "" if unit == "B" else f" {unit}"
        self._marks: list[tuple[int, float]] = []  # units and time of the first report, and of the end of the first batch

    def line(self, done: int, total: int | None) -> str:
        """Return the progress, its rate, and the expected time that is left if enough is done: what finishes together says little."""
        n_timed, rate = self._measure(done)
        line = self._text(done) + (f" of {self._text(total)}" if total else "") + self._unit
        if rate:
            line += f", {f'{rate:.2g}' if self._unit and rate < 10 else self._text(rate)}{self._unit}/s"
        if total and rate and n_timed >= min(_MIN_DONE, total / 4):
            line += f", about {format_duration((total - done) / rate)} left"
        return line

    def _measure(self, done: int) -> tuple[int, float]:
        """Return the units since the first batch, and those per second; 0 before the second batch is done."""
        if self._marks and done < self._marks[-1][0]:
            self._marks.clear()
        if not self._marks or (len(self._marks) == 1 and done > self._marks[0][0]):
            self._marks.append((done, time.monotonic()))
        first, start = self._marks[-1]
        return done - first, (done - first) / max(1e-3, time.monotonic() - start)

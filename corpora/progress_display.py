"""Display of progress on standard error, for the command line and for builds from Python."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

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
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn(compact=True))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def show_bar(name: str, unit: str) -> Progress:
            state = _State(unit)
            tasks: list[TaskID] = []

            def update(done: int, total: int | None) -> None:
                if not tasks:
                    tasks.append(bars.add_task(name, total=None, state=""))
                bars.update(tasks[0], completed=done, total=total, state=state.line(done, total))

            return update

        yield show_bar


def _log_step(name: str, unit: str) -> Progress:
    """Return a progress callback that writes a line to standard error, at most every ten seconds."""
    state = _State(unit)
    last = time.monotonic()

    def log(done: int, total: int | None) -> None:
        nonlocal last
        line = f"{name}: {state.line(done, total)}{state.left(done, total)}"
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    return log


class _State:
    """Progress of a step as text. The rate is measured from the first report: earlier progress may be from an interrupted run."""

    def __init__(self, unit: str) -> None:
        self._text: Callable[[float], str] = format_bytes if unit == "B" else "{:,.0f}".format
        self._unit = "" if unit == "B" else f" {unit}"
        self._first: tuple[int, float] | None = None

    def line(self, done: int, total: int | None) -> str:
        rate = self._rate(done)
        of = f" of {self._text(total)}" if total else ""
        return f"{self._text(done)}{of}{self._unit}" + (f", {self._per_s(rate)}{self._unit}/s" if rate else "")

    def left(self, done: int, total: int | None) -> str:
        """Return the expected time that is left; nothing at first: what finishes together says little about the rest."""
        rate = self._rate(done)
        if not total or not rate or self._first is None or done - self._first[0] < min(_MIN_DONE, total / 4):
            return ""
        return f", about {format_duration((total - done) / rate)} left"

    def _per_s(self, rate: float) -> str:
        return f"{rate:.2g}" if self._unit and rate < 10 else self._text(rate)

    def _rate(self, done: int) -> float:
        if self._first is None or done < self._first[0]:
            self._first = (done, time.monotonic())
        return (done - self._first[0]) / max(1e-3, time.monotonic() - self._first[1])

"""What the commands share in showing things: errors, sizes, times, progress."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from corpora.progress import Progress

_LOG_EVERY_S = 10.0


def say(line: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")


def note(line: str) -> None:
    """Write a line about what is going on to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a value as JSON."""
    say(json.dumps(value, ensure_ascii=False, indent=1))


def fail(message: str) -> NoReturn:
    """Write an error on one line and leave with exit status 2."""
    note("error: " + " ".join(message.split()))
    sys.exit(2)


def size(n_bytes: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.{0 if unit == 'B' else 1}f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"


def duration(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


@contextlib.contextmanager
def progress(what: str, unit: str) -> Iterator[Progress]:
    """Show a step's progress: a bar with rate and time left on a terminal, otherwise a line now and then.

    Args:
        what: the step's name.
        unit: what is counted; "B" for bytes.
    """
    if sys.stderr.isatty():
        with _bar(what, unit) as report:
            yield report
        return
    started = last = time.monotonic()

    def log(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _LOG_EVERY_S:
            return
        last = now
        rate = done / (now - started)
        left = f" of {_amount(total, unit)}, about {duration((total - done) / rate)} left" if total and rate else ""
        note(f"{what}: {_amount(done, unit)}{left}, {_amount(rate, unit)}/s")

    yield log


@contextlib.contextmanager
def _bar(what: str, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn(compact=True))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, state="")
        started = time.monotonic()

        def draw(done: int, total: int | None) -> None:
            rate = done / max(1e-9, time.monotonic() - started)
            of_total = f" of {_amount(total, unit)}" if total else ""
            bar.update(task, completed=done, total=total, state=f"{_amount(done, unit)}{of_total}, {_amount(rate, unit)}/s")

        yield draw


def _amount(n: float, unit: str) -> str:
    return size(n) if unit == "B" else f"{n:,.0f} {unit}"

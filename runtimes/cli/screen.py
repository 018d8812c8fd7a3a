"""Terminal output of all commands: lines, JSON, errors, durations, progress."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from wikidx.corpora.progress import Progress, Step, format_bytes

if TYPE_CHECKING:
    from rich.progress import TaskID

_LOG_EVERY_S = 10.0
_SHOWN_CHARACTERS = 300  # of a passage
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_BOLD, _NORMAL = "\x1b[1m", "\x1b[22m"
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON does not escape these


def print_line(line: str = "") -> None:
    """Write a line to standard output. Control characters are escaped, because the line may quote files and passages."""
    sys.stdout.write(escape_controls(line) + "\n")


def note(line: str) -> None:
    """Write a line to standard error, with control characters escaped."""
    sys.stderr.write(escape_controls(line) + "\n")
    sys.stderr.flush()


def print_json(value: Any, *, indent: int | None = 1) -> None:  # noqa: ANN401 - any JSON value
    """Write a value as JSON to standard output; without indentation on one line."""
    print_line(json.dumps(value, ensure_ascii=False, indent=indent).translate(_JSON_CONTROLS))


def escape_controls(text: str) -> str:
    """Return a text with control characters escaped, except tabs and line breaks."""
    return text.translate(_CONTROLS)


def print_passage(heading: str, text: str, queries: Sequence[str] = (), *, is_full: bool = False) -> None:
    """Write a heading and the beginning of a passage's text, or all of it, on a terminal with the words of the queries in bold."""
    heading, shown = escape_controls(heading), escape_controls(text)
    if not is_full:
        shown = textwrap.shorten(shown, _SHOWN_CHARACTERS, placeholder=" …")
    lines = [textwrap.fill(line, 100, initial_indent="     ", subsequent_indent="     ") for line in shown.splitlines()]
    shown = "\n".join(lines)
    if queries and _is_styled():
        from wikidx.retrievers.highlight import find_highlights

        heading = f"{_BOLD}{heading}{_NORMAL}"
        for start, stop in reversed(find_highlights([shown], queries)[0]):
            shown = f"{shown[:start]}{_BOLD}{shown[start:stop]}{_NORMAL}{shown[stop:]}"
    sys.stdout.write(f"{heading}\n{shown}\n")


def _is_styled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_unicode(text: str) -> bool:
    """Return whether a text is free of surrogates, which Python puts into arguments that are not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def fail(message: str) -> NoReturn:
    """Write an error on one line and exit with status 2."""
    note("error: " + " ".join(message.split()))
    sys.exit(2)


def coverage(counts: Mapping[str, int]) -> str:
    """Return a manifest's counts as text: the number of rows and, if there are any, the number of rows without a vector."""
    return pluralize(counts["rows"], "row") + (f", {counts['missing']:,} of them without a vector" if counts.get("missing") else "")


def pluralize(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with a noun, such as ``1 question``; ``plural`` is the noun's irregular plural."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def format_duration(seconds: float) -> str:
    """Return a human-readable duration."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


@contextlib.contextmanager
def steps() -> Iterator[Step]:
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
            note(line)

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
        return f"{self._text(done)}{of}{self._unit}" + (f", {self._text(rate)}{self._unit}/s" if rate else "")

    def left(self, done: int, total: int | None) -> str:
        rate = self._rate(done)
        return f", about {format_duration((total - done) / rate)} left" if total and rate else ""

    def _rate(self, done: int) -> float:
        if self._first is None or done < self._first[0]:
            self._first = (done, time.monotonic())
        return (done - self._first[0]) / max(1e-3, time.monotonic() - self._first[1])

"""Terminal output shared by the commands: errors, sizes, times, progress."""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from wikidx.corpora.progress import Progress, Step, amount

if TYPE_CHECKING:
    from rich.progress import TaskID

_LOG_EVERY_S = 10.0
_SHOWN_CHARACTERS = 300  # maximum of a passage
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}  # which JSON leaves as they are


def say(line: str = "") -> None:
    """Write a line to standard output; ``visible``, as it may quote files and passages."""
    sys.stdout.write(visible(line) + "\n")


def note(line: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(visible(line) + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a value as JSON."""
    say(json.dumps(value, ensure_ascii=False, indent=1).translate(_JSON_CONTROLS))


def visible(text: str) -> str:
    """Return a text with control characters escaped, except tabs and line breaks."""
    return text.translate(_CONTROLS)


def say_passage(head: str, text: str) -> None:
    """Write the beginning of a passage under its heading."""
    say(head)
    shown = textwrap.shorten(visible(text), _SHOWN_CHARACTERS, placeholder=" …")
    say(textwrap.fill(shown, 100, initial_indent="     ", subsequent_indent="     "))


def is_unicode(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, which an argument in another encoding cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def fail(message: str) -> NoReturn:
    """Write an error on one line and exit with status 2."""
    note("error: " + " ".join(message.split()))
    sys.exit(2)


def coverage(counts: Mapping[str, int]) -> str:
    """Return the number of rows of an index, and of those without a vector, according to its manifest."""
    return f"{counts['rows']:,} rows" + (f", {counts['missing']:,} of them without a vector" if counts.get("missing") else "")


def counted(n: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun, such as ``1 question``; ``several`` is an irregular plural."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def duration(seconds: float) -> str:
    """Return a human-readable duration."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


@contextlib.contextmanager
def steps() -> Iterator[Step]:
    """Show the progress of consecutive steps: bars with rate and time left on a terminal, periodic lines otherwise.

    Yields a function that takes a step's name and its unit ("B" for bytes) and returns the progress callback. A step shows nothing
    before its first report.
    """
    if not sys.stderr.isatty():
        yield _logged
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn(compact=True))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:

        def drawn(what: str, unit: str) -> Progress:
            state = _State(unit)
            tasks: list[TaskID] = []

            def draw(done: int, total: int | None) -> None:
                if not tasks:
                    tasks.append(bars.add_task(what, total=None, state=""))
                bars.update(tasks[0], completed=done, total=total, state=state.line(done, total))

            return draw

        yield drawn


def _logged(what: str, unit: str) -> Progress:
    """Report progress of a step as a line on standard error every ten seconds."""
    state = _State(unit)
    last = time.monotonic()

    def log(done: int, total: int | None) -> None:
        nonlocal last
        line = f"{what}: {state.line(done, total)}{state.left(done, total)}"
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            note(line)

    return log


class _State:
    """Progress of a step as text. The rate counts from the first report: what was done before cost no time now."""

    def __init__(self, unit: str) -> None:
        self._text: Callable[[float], str] = amount if unit == "B" else "{:,.0f}".format
        self._unit = "" if unit == "B" else f" {unit}"
        self._first: tuple[int, float] | None = None

    def line(self, done: int, total: int | None) -> str:
        rate = self._rate(done)
        of = f" of {self._text(total)}" if total else ""
        return f"{self._text(done)}{of}{self._unit}" + (f", {self._text(rate)}{self._unit}/s" if rate else "")

    def left(self, done: int, total: int | None) -> str:
        rate = self._rate(done)
        return f", about {duration((total - done) / rate)} left" if total and rate else ""

    def _rate(self, done: int) -> float:
        if self._first is None or done < self._first[0]:
            self._first = (done, time.monotonic())
        return (done - self._first[0]) / max(1e-3, time.monotonic() - self._first[1])

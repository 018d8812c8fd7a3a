"""Terminal output of all commands: lines, JSON, errors, durations, progress."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import typer

from wikidx.base.errors import escape_controls, named_errors

_SHOWN_CHARACTERS = 300  # of a passage
_BOLD, _NORMAL = "\x1b[1m", "\x1b[22m"


class Result(NamedTuple):
    """The result of a command; ``print_result`` prints it.

    Attributes:
        values: the JSON value of ``--json``, or a function that returns it.
        lines: the lines of text without ``--json``, and functions that print what is more than a line.
        notes: lines for standard error, without ``--json``.
        failure: why the exit status is 1, for standard error; None: it is 0.
    """

    values: Any
    lines: Iterable[str | Callable[[], None]] = ()
    notes: Iterable[str] = ()
    failure: str | None = None


def print_result(result: Result, *, as_json: bool) -> None:
    """Print a result as JSON or as text; exit with status 1 if it is a failure."""
    if as_json:
        print_json(result.values() if callable(result.values) else result.values)
    else:
        for line in result.lines:
            line() if callable(line) else print_line(line)
        for line in result.notes:
            note(line)
    if result.failure is not None:
        note(result.failure)
        raise typer.Exit(1)


def print_line(line: str = "") -> None:
    """Write a line to standard output. Control characters are escaped, because the line may quote files and passages."""
    _write(escape_controls(line) + "\n")


def note(line: str) -> None:
    """Write a line to standard error, with control characters escaped."""
    sys.stderr.write(escape_controls(line) + "\n")
    sys.stderr.flush()


def print_json(value: Any, *, indent: int | None = 1) -> None:  # noqa: ANN401 - any JSON value
    """Write a value as JSON to standard output; without indentation on one line."""
    print_line(escape_controls(json.dumps(value, ensure_ascii=False, indent=indent), lambda letter: json.dumps(letter)[1:-1]))


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
    _write(f"{heading}\n{shown}\n")


def _write(text: str) -> None:
    with named_errors("standard output"):
        sys.stdout.write(text)


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

"""Tables of results: as aligned text for a terminal, as Markdown, and as values for JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from wikidx.runtimes.evaluation.uncertainty import Interval

Cell = str | int | float | Interval | None

ABSENT = "–"
_MARKDOWN = re.compile(r"([\\|<*`])|(?<!\w)(_)|(_)(?!\w)")


def shown(value: Cell) -> str:
    """Return a cell as people read it: numbers with thousands, fractions to three places, an absent or undefined one as a dash."""
    return f"{value:,}" if isinstance(value, int) else _written(value, "{:,.3f}".format)


def percent(value: Cell) -> str:
    """Return a share between 0 and 1 in per cent to one place, as the papers do, without the sign."""
    return _written(value, lambda share: f"{100 * share:.1f}")


def signed_percent(value: Cell) -> str:
    """Return a difference of shares in points, with its sign."""
    return _written(value, lambda share: f"{100 * share:+.1f}")


def brief(value: Cell) -> str:
    """Return an amount to three digits, all of them before the point: 0.291, 1, 446, 12,345."""
    return _written(value, lambda amount: f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}")


def p_value(value: Cell) -> str:
    """Return a p to three places."""
    return "<0.001" if isinstance(value, float) and value < 0.0005 else shown(value)


def _written(value: Cell, write: Callable[[float], str]) -> str:
    """Return a cell whose numbers are written so; the ends of an interval stand in brackets behind its mean."""
    match value:
        case Interval():
            mean, low, high = map(write, value[:3])
            return f"{mean} [{low}, {high}]" if value.n else ABSENT
        case float() | int():
            return write(value) if math.isfinite(value) else ABSENT
        case None:
            return ABSENT
        case _:
            return value


class Column(NamedTuple):
    """A column: its heading, and how its cells are shown."""

    name: str
    show: Callable[[Cell], str] = shown


class Table(NamedTuple):
    """Rows of values.

    Attributes:
        columns: one for each cell of a row.
        rows: cells; of a table of results the first cell says what the row is about.
        title: above the table; may be empty.
        notes: below it, a line each.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()


def text(table: Table) -> str:
    """Return a table as lines of aligned columns: texts to the left, numbers to the right; without an end of line at the end."""
    lines = [[text_line(column.name) for column in table.columns], *cells(table)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = numeric(table)
    drawn = ["  ".join(map(_padded, line, widths, right)).rstrip() for line in lines]
    drawn.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*([text_line(table.title)] if table.title else []), *drawn, *map(text_line, table.notes)])


def markdown(table: Table) -> str:
    """Return a table in GitHub's Markdown; without an end of line at the end."""
    lines = [[text_line(column.name) for column in table.columns], *cells(table)]
    escaped = ["| " + " | ".join(map(_escaped, line)) + " |" for line in lines]
    escaped.insert(1, "|" + "|".join("---:" if right else "---" for right in numeric(table)) + "|")
    title = [f"**{markdown_line(table.title)}**", ""] if table.title else []
    notes = [line for note in table.notes for line in ("", markdown_line(note))]
    return "\n".join([*title, *escaped, *notes])


def records(table: Table) -> list[dict[str, Any]]:
    """Return the rows as JSON has them, by the columns' names: values unrounded, intervals as objects, what is not defined as null."""
    return [{column.name: json_value(cell) for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def json_value(cell: Cell) -> Any:  # noqa: ANN401 - JSON
    """Return a cell as JSON has it."""
    if isinstance(cell, Interval):
        return {name: json_value(value) for name, value in cell._asdict().items()}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def cells(table: Table) -> list[list[str]]:
    """Return the cells of a table as they are shown, each on one line."""
    return [[text_line(column.show(cell)) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows]


def numeric(table: Table) -> list[bool]:
    """Return for each column whether it holds numbers and no texts."""
    columns = [[row[place] for row in table.rows] for place in range(len(table.columns))]
    return [not any(isinstance(cell, str) for cell in column) and any(cell is not None for cell in column) for column in columns]


def text_line(text: str) -> str:
    """Return a text on one line that a terminal shows and does not obey."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in " ".join(text.split()))


def markdown_line(text: str) -> str:
    """Return a text on one line that Markdown shows as it stands."""
    return _escaped(text_line(text))


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(lambda found: f"\\{found.group()}", text)

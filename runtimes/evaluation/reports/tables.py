"""Tables of results, rendered as aligned text for a terminal, as Markdown, CSV or LaTeX, or as JSON values."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len

from wikidx.base.errors import escape_controls
from wikidx.runtimes.evaluation.uncertainty import Interval


class Spread(NamedTuple):
    """Mean and standard deviation of the means of ``n`` runs; the deviation of one run is NaN."""

    mean: float
    deviation: float
    n: int


Cell = str | int | float | Interval | Spread | None

ABSENT = "–"
_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX |= {
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",
    "–": "--",
    "±": r"$\pm$",
}  # "[" after a line break would be its argument
_MARKDOWN = re.compile(r"[\\|<*`\[\]]|(?<!\w)_|_(?!\w)|!(?=\[)|&(?=#?\w+;)")
_FORMULA = tuple("=+-@＝＋－＠")  # with which a spreadsheet's formulas begin


def plain(value: Cell) -> str:
    """Format a number with thousands separators; floats have three decimal places."""
    return f"{value:,}" if isinstance(value, int) else _format(value, "{:,.3f}".format)


def percent(value: Cell) -> str:
    """Format a share from 0 to 1 as a percentage to one decimal place, without the per cent sign."""
    return _format(value, lambda share: f"{100 * share:.1f}")


def signed_percent(value: Cell) -> str:
    """Format a difference of shares in percentage points to one decimal place, with + or -."""
    return _format(value, lambda share: f"{100 * share:+.1f}")


def brief(value: Cell) -> str:
    """Format an amount to three significant digits, and from 100 on to a whole number: 0.291, 1, 446, 12,345."""
    return _format(value, lambda amount: f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}")


def signed_brief(value: Cell) -> str:
    """Format a difference of amounts as ``brief`` does, with + or -."""
    return _format(value, lambda amount: f"{amount:+,.0f}" if abs(amount) >= 100 else f"{amount:+.3g}")


def p_value(value: Cell) -> str:
    """Format a p-value to three decimal places."""
    return "<0.001" if isinstance(value, float) and value < 0.0005 else plain(value)


def _format(value: Cell, write: Callable[[float], str]) -> str:
    """Format a number by ``write``, an interval as its mean with its ends in brackets, and a mean with its deviation after "±".

    A text is returned unchanged. None and undefined values become a dash.
    """
    match value:
        case Interval():
            mean, low, high = map(write, value[:3])
            return f"{mean} [{low}, {high}]" if value.n else ABSENT
        case Spread():
            return f"{_format(value.mean, write)} ± {_format(value.deviation, write)}"
        case float() | int():
            return write(value) if math.isfinite(value) else ABSENT
        case None:
            return ABSENT
        case _:
            return value


class Column(NamedTuple):
    """A column: its heading, and the function that formats its cells."""

    name: str
    show: Callable[[Cell], str] = plain


def columns(*names: str, show: Callable[[Cell], str] = plain) -> list[Column]:
    """Return columns whose cells are formatted alike."""
    return [Column(name, show) for name in names]


class Table(NamedTuple):
    """A table of values.

    Attributes:
        columns: the columns, in order.
        rows: the rows, each with one cell per column.
        title: the title above the table; empty: no title.
        notes: lines below the table.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()


def text(table: Table) -> str:
    """Render a table as plain text in aligned columns. Numbers are aligned to the right. The last line has no line break."""
    lines = [[text_line(column.name) for column in table.columns], *cells(table)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = numeric(table)
    rendered = ["  ".join(map(_pad, line, widths, right)).rstrip() for line in lines]
    rendered.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*([text_line(table.title)] if table.title else []), *rendered, *map(text_line, table.notes)])


def markdown(table: Table) -> str:
    """Render a table in GitHub's Markdown. The last line has no line break."""
    lines = [[markdown_line(column.name) for column in table.columns], *cells(table, markdown_line)]
    escaped = ["| " + " | ".join(line) + " |" for line in lines]
    escaped.insert(1, "|" + "|".join("---:" if right else "---" for right in numeric(table)) + "|")
    title = [f"**{markdown_line(table.title)}**", ""] if table.title else []
    notes = [line for note in table.notes for line in ("", markdown_line(note))]
    return "\n".join([*title, *escaped, *notes])


def to_csv(table: Table) -> str:
    """Render a table as CSV with unrounded numbers, shares in the unit of their column.

    A column of intervals becomes three columns, and a column of means with deviations two. Undefined values are empty.
    """
    parts = [_parts(index, table) for index in range(len(table.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [[csv_line(column.name), *extra] for column, extra in zip(table.columns, parts, strict=True)]
    writer.writerow([f"{name[0]} {part}".rstrip() for name in names for part in ("", *name[1:])])
    for row in table.rows:
        writer.writerow(
            [
                field
                for column, cell, extra in zip(table.columns, row, parts, strict=True)
                for field in _csv_fields(cell, len(extra) + 1, 100 if column.show in (percent, signed_percent) else 1)
            ]
        )
    return file.getvalue().rstrip("\n")


def _parts(index: int, table: Table) -> list[str]:
    """Return the names of further CSV columns of a column."""
    kinds = {type(row[index]) for row in table.rows}
    return ["low", "high"] if Interval in kinds else ["deviation"] if Spread in kinds else []


def _csv_fields(cell: Cell, n: int, scale: int) -> list[str]:
    numbers = list(cell[:-1]) if isinstance(cell, Interval | Spread) else [cell]
    fields = [
        csv_line(value) if isinstance(value, str) else "" if value is None or not math.isfinite(value) else f"{value * scale:.10g}"
        for value in numbers
    ]
    return fields + [""] * (n - len(fields))


def latex(table: Table) -> str:
    """Render a table in LaTeX, with the rules of the package booktabs. The last line has no line break."""
    right = numeric(table)
    heads = [latex_line(column.name) for column in table.columns]
    rows = [
        [re.sub(r"-(?=\d)", "$-$", latex_line(cell)) if number else latex_line(cell) for cell, number in zip(row, right, strict=True)]
        for row in cells(table)
    ]
    body = [rf"{' & '.join(row)} \\" for row in (heads, *rows)]
    begin = rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in right)}}}"
    lines = [begin, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    caption = [rf"\caption{{{latex_line(table.title)}}}"] if table.title else []
    notes = [rf"\par\footnotesize {latex_line(note)}" for note in table.notes]
    return "\n".join([r"\begin{table}", *caption, *lines, *notes, r"\end{table}"])


def to_records(table: Table) -> list[dict[str, Any]]:
    """Return each row as a dict from column name to the value of ``cell_json``."""
    return [{column.name: cell_json(cell) for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def cell_json(cell: Cell) -> Any:  # noqa: ANN401 - JSON
    """Return a cell as a JSON value: an interval and a spread as dicts, an undefined value as None. Numbers are not rounded."""
    if isinstance(cell, Interval | Spread):
        return {name: cell_json(value) for name, value in cell._asdict().items()}
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def cells(table: Table, escape: Callable[[str], str] | None = None) -> list[list[str]]:
    """Return the formatted cells of a table, each on one line; texts, not numbers, are escaped, by default for a terminal."""
    by_type: dict[type, Callable[[str], str]] = {str: escape or text_line}
    return [
        [by_type.get(type(cell), str)(column.show(cell)) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows
    ]


def numeric(table: Table) -> list[bool]:
    """Return for each column whether it contains numbers and no texts."""
    columns = [[row[index] for row in table.rows] for index in range(len(table.columns))]
    return [not any(isinstance(cell, str) for cell in column) and any(cell is not None for cell in column) for column in columns]


def text_line(text: str) -> str:
    """Return a text on one line for a terminal or a plot."""
    return escape_controls(" ".join(text.split()))


def html_line(text: str) -> str:
    """Return a text on one line for a page."""
    return html.escape(text_line(text))


def markdown_line(text: str) -> str:
    """Return a text on one line for Markdown, where it has no format, link, image or entity."""
    return _MARKDOWN.sub(lambda match: f"\\{match.group()}", text_line(text))


def csv_line(text: str) -> str:
    """Return a text on one line for CSV; an apostrophe keeps spreadsheets from calculating it."""
    line = text_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def latex_line(text: str) -> str:
    """Return a text on one line for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text_line(text))


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space

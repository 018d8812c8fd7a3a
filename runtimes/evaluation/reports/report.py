"""A report of tables and plots, rendered as text, as Markdown, or as one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wikidx.runtimes.evaluation.reports import tables
from wikidx.runtimes.evaluation.reports.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A plot: its alternative text, and the function that draws it."""

    alt: str
    draw: Callable[[], Figure]


class Section(NamedTuple):
    """A section of a report; only HTML shows its plots."""

    title: str
    tables: Sequence[Table] = ()
    plots: Sequence[Drawing] = ()


class Report(NamedTuple):
    """The results of an evaluation.

    Attributes:
        title: the subject of the evaluation.
        facts: (label, value) pairs that describe the subject and the settings.
        sections: the sections, in order; empty sections are not rendered.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]


def to_text(report: Report) -> str:
    """Render a report for a terminal."""
    facts = [tables.text_line(f"{label}: {value}") for label, value in report.facts]
    parts = ["\n".join([tables.text_line(report.title), *facts])]
    parts += [tables.text(table) for section in report.sections for table in section.tables]
    return "\n\n".join(parts)


def to_markdown(report: Report) -> str:
    """Render a report in GitHub's Markdown."""
    parts = [f"# {tables.markdown_line(report.title)}"]
    parts.append("\n".join(f"- {tables.markdown_line(label)}: {tables.markdown_line(value)}" for label, value in report.facts))
    for section in report.sections:
        if section.tables:
            parts += [f"## {tables.markdown_line(section.title)}", *map(tables.markdown, _drop_repeated_titles(section))]
    return "\n\n".join(filter(None, parts))


def to_html(report: Report) -> str:
    """Render a report as one self-contained HTML page; all texts are escaped.

    Raises:
        MissingExtraError: the report has plots, and matplotlib or adjustText is not installed.
    """
    facts = "\n".join(f"<dt>{_escape(label)}</dt><dd>{_escape(value)}</dd>" for label, value in report.facts)
    sections = "".join(_section(section) for section in report.sections if section.tables or section.plots)
    title = _escape(report.title)
    head = f"{_HEAD}<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n"
    return f"{head}<body>\n<h1>{title}</h1>\n<dl>{facts}</dl>\n{sections}</body>\n</html>\n"


def _drop_repeated_titles(section: Section) -> list[Table]:
    """Return the tables of a section; a table title that equals the section title becomes empty."""
    return [table._replace(title="") if table.title == section.title else table for table in section.tables]


def _section(section: Section) -> str:
    parts = [f"<h2>{_escape(section.title)}</h2>\n", *map(_drawing, section.plots), *map(_table, _drop_repeated_titles(section))]
    return f"<section>\n{''.join(parts)}</section>\n"


def _drawing(drawing: Drawing) -> str:
    from wikidx.runtimes.evaluation.reports.plots import svg

    return f'<img alt="{_escape(drawing.alt)}" src="{svg(drawing.draw())}">\n'


def _table(table: Table) -> str:
    right = tables.numeric(table)
    head = "".join(
        f"<th{_RIGHT if number else ''}>{_escape(column.name)}</th>" for column, number in zip(table.columns, right, strict=True)
    )
    rows = "\n".join(
        "<tr>" + "".join(f"<td{_RIGHT if number else ''}>{_escape(cell)}</td>" for cell, number in zip(row, right, strict=True)) + "</tr>"
        for row in tables.cells(table)
    )
    caption = f"<caption>{_escape(table.title)}</caption>" if table.title else ""
    notes = "".join(f'<p class="note">{_escape(note)}</p>\n' for note in table.notes)
    return f'<div class="wide"><table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n{notes}'


def _escape(text: str) -> str:
    return html.escape(tables.text_line(text))


_RIGHT = ' class="number"'
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem } dt { color: #555 } dd { margin: 0 }
.wide { overflow-x: auto; margin: 1.2rem 0 .4rem }
table { border-collapse: collapse; font-size: .9rem } caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd }
th { border-bottom: 2px solid #888 } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.note { color: #555; font-size: .85rem; margin: .1rem 0 } img { display: block; max-width: 100%; margin: 1rem 0 }
"""

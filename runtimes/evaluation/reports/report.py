"""A report of tables and plots, rendered as text, Markdown, CSV or LaTeX, or as one self-contained HTML page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.reports import tables
from wikidx.runtimes.evaluation.reports.tables import Table, html_line

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


def to_csv(report: Report) -> str:
    """Render the tables of a report as CSV; several tables each follow a line with their title, and blank lines separate them."""
    every = [table for section in report.sections for table in section.tables]
    return "\n\n".join(
        f"# {tables.text_line(table.title)}\n{tables.to_csv(table)}" if len(every) > 1 else tables.to_csv(table) for table in every
    )


def to_latex(report: Report) -> str:
    """Render the tables of a report in LaTeX."""
    return "\n\n".join(tables.latex(table) for section in report.sections for table in section.tables)


def select_tables(report: Report, beginnings: Sequence[str]) -> Report:
    """Return a report with the tables alone whose title begins with one of the texts, in any case.

    Raises:
        InputError: no title begins with one of the texts.
    """
    titles = [table.title for section in report.sections for table in section.tables]
    for beginning in beginnings:
        if not any(title.casefold().startswith(beginning.casefold()) for title in titles):
            raise InputError(f"no table's title begins with '{beginning}': there are {', '.join(map(repr, titles))}")
    starts = tuple(beginning.casefold() for beginning in beginnings)
    sections = [
        section._replace(tables=[table for table in section.tables if table.title.casefold().startswith(starts)], plots=())
        for section in report.sections
    ]
    return report._replace(sections=sections)


def to_html(report: Report) -> str:
    """Render a report as one self-contained HTML page; all texts are escaped. Without matplotlib or adjustText it has no plots."""
    facts = "\n".join(f"<dt>{html_line(label)}</dt><dd>{html_line(value)}</dd>" for label, value in report.facts)
    sections = "".join(_section(section) for section in report.sections if section.tables or section.plots)
    title = html_line(report.title)
    head = f"{_HEAD}<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n"
    return f"{head}<body>\n<h1>{title}</h1>\n<dl>{facts}</dl>\n{sections}</body>\n</html>\n"


def _drop_repeated_titles(section: Section) -> list[Table]:
    """Return the tables of a section; a table title that equals the section title becomes empty."""
    return [table._replace(title="") if table.title == section.title else table for table in section.tables]


def _section(section: Section) -> str:
    drawings = "".join(map(_drawing, section.plots))
    plots = f'<div class="plots">\n{drawings}</div>\n' if drawings else ""
    parts = [f"<h2>{html_line(section.title)}</h2>\n", *map(_table, _drop_repeated_titles(section))]
    return f"<section>\n{''.join([*parts, plots])}</section>\n"


def _drawing(drawing: Drawing) -> str:
    with leave_out_missing(), warnings.catch_warnings():
        from wikidx.runtimes.evaluation.reports.plots import svg

        warnings.simplefilter("ignore", UserWarning)  # about letters that matplotlib's font lacks; the tables have them
        return f'<img alt="{html_line(drawing.alt)}" src="{svg(drawing.draw())}">\n'
    return ""


def _table(table: Table) -> str:
    """Render a table; each cell also holds its heading, which narrow screens show beside the cell."""
    right, names = tables.numeric(table), [html_line(column.name) for column in table.columns]
    head = "".join(f"<th{_RIGHT if number else ''}>{name}</th>" for name, number in zip(names, right, strict=True))
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, names, right))}</tr>" for row in tables.cells(table))
    caption = f"<caption>{html_line(table.title)}</caption>" if table.title else ""
    notes = "".join(f'<p class="note">{html_line(note)}</p>\n' for note in table.notes)
    return f'<div class="wide"><table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n{notes}'


def _cell(text: str, name: str, is_number: bool) -> str:
    return f'<td{_RIGHT if is_number else ""} data-name="{name}">{html_line(text)}</td>'


_RIGHT = ' class="number"'
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
_CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --muted: #5c5c5c; --line: #ddd; --rule: #888 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #161817; --ink: #e7e5df; --muted: #a09d95; --line: #323634; --rule: #777 }
  img { filter: invert(1) hue-rotate(180deg) }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
body { max-width: 90rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h1, h2, caption, p, dd { overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem }
dt { color: var(--muted) } dd { margin: 0 }
.wide { overflow-x: auto; margin: 1.2rem 0 .4rem }
table { border-collapse: collapse; font-size: .9rem } caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
th { border-bottom: 2px solid var(--rule) } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.note { color: var(--muted); font-size: .85rem; margin: .1rem 0 }
.plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem; margin: 1rem 0 } img { display: block; max-width: 100% }
@media (max-width: 40rem) {
  table, caption, tbody, tr, td { display: block } thead { display: none }
  tr { border-bottom: 2px solid var(--line); padding: .4rem 0 } tr:first-child { border-top: 2px solid var(--rule) }
  td { display: grid; grid-template-columns: 9rem 1fr; border: 0; padding: .05rem 0; overflow-wrap: anywhere }
  .number { text-align: left; white-space: normal } td::before { content: attr(data-name); color: var(--muted); padding-right: .5rem }
}
"""

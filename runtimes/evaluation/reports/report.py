"""A report of tables and plots, rendered as text, Markdown, CSV or LaTeX, or as one self-contained HTML page."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.reports import tables
from wikidx.runtimes.evaluation.reports.drawings import Drawing
from wikidx.runtimes.evaluation.reports.tables import Table, html_line


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


def render(report: Report, form: str) -> str:
    """Render a report in one of ``FORMATS``."""
    return FORMATS[form](report)


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
    page = Template(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return page.substitute(title=html_line(report.title), facts=facts, sections=sections)


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
        from wikidx.runtimes.evaluation.reports import plots

        warnings.simplefilter("ignore", UserWarning)  # about letters that matplotlib's font lacks; the tables have them
        figure = getattr(plots, drawing.function)(*drawing.arguments)
        return f'<img alt="{html_line(drawing.alt)}" src="{plots.svg(figure)}">\n'
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

FORMATS = {"table": to_text, "markdown": to_markdown, "csv": to_csv, "latex": to_latex, "html": to_html}
"""Name of a format -> function that renders a report in it."""

"""Texts of files, servers and models reach a terminal, a page or a table through the function of that target alone."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import wikidx
from wikidx.runtimes.cli.commands import LogFormatter

_PACKAGES = Path(wikidx.__file__).parent.parent
_WRITERS = (
    *("print", "sys.stdout.write", "sys.stderr.write", "os.write", "console.print", "bars.add_task", "warnings.warn", "csv.writer"),
    *("typer.echo", "typer.secho", "typer.confirm", "typer.prompt", "click.echo", "logging.basicConfig", "html.escape", "escape"),
    *("axes.set_title", "axes.text", "axes.set_yticks", "figure.legend", "input", "writelines"),
)
PLACES = {
    ("wikidx/base/progress_display.py", "bars.add_task"): "escape_controls",
    ("wikidx/base/progress_display.py", "sys.stderr.write"): "escape_controls",
    ("wikidx/base/errors.py", "escape"): "escape_controls",
    ("wikidx/base/machine/devices.py", "sys.stdout.write"): "numbers",
    ("retrievers/cluster/shard.py", "sys.stderr.write"): "an IdxError, which escapes",
    ("retrievers/base.py", "html.escape"): "a page",
    ("retrievers/server/access_log.py", "os.write"): "JSON in ASCII",
    ("runtimes/cli/commands.py", "logging.basicConfig"): "LogFormatter",
    ("runtimes/cli/remove.py", "typer.confirm"): "escape_controls",
    ("runtimes/cli/screen.py", "sys.stderr.write"): "escape_controls",
    ("runtimes/cli/screen.py", "sys.stdout.write"): "escape_controls",
    ("runtimes/cli/trace.py", "console.print"): "escape_controls",
    ("runtimes/evaluation/reports/plots.py", "axes.set_title"): "text_line",
    ("runtimes/evaluation/reports/plots.py", "axes.set_yticks"): "text_line, through _short",
    ("runtimes/evaluation/reports/plots.py", "axes.text"): "text_line, through _short",
    ("runtimes/evaluation/reports/plots.py", "figure.legend"): "the papers' names",
    ("runtimes/evaluation/reports/tables.py", "csv.writer"): "csv_line",
    ("runtimes/evaluation/reports/tables.py", "html.escape"): "html_line",
}
"""Each place that writes for a reader, and what escapes foreign texts there: a new one is named here with its function."""


def places() -> Iterator[tuple[str, str]]:
    for package in ("corpora", "indexer", "retrievers", "runtimes", "wikidx"):
        for file in (_PACKAGES / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in _WRITERS:
                    yield file.relative_to(_PACKAGES).as_posix(), name


def test_each_place_that_writes_for_a_reader_is_known() -> None:
    assert set(places()) == PLACES.keys()


@pytest.mark.parametrize(("text", "shown"), [("a\x1b[2J", "a\\x1b[2J"), ("\u202eb\x9b", "\\u202eb\\x9b")])
def test_a_log_line_steers_no_terminal(text: str, shown: str) -> None:
    record = logging.makeLogRecord({"msg": "%s, é", "args": (text,)})
    assert LogFormatter("%(message)s").format(record) == f"{shown}, é"

"""``idx view``: a local page that shows the questions of a run with their traces, or compares two runs question by question.

Examples:
    idx view runs/rag
    idx view runs/direct runs/rag
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .screen import note, pluralize


def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [RUN]", help='A folder of "idx run", or two to compare.')],
    questions: Annotated[
        str | None, typer.Option(help='A file of questions with gold answers, or "sample"; default: the file that the run read.')
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the page; 0: any free port.")] = 0,
) -> None:
    """Show the questions of a run, or of two, in a browser."""
    from wikidx.base.errors import InputError
    from wikidx.retrievers.server.settings import Settings, listen, server_url
    from wikidx.runtimes.pages.viewing import Viewer, serve

    if len(runs) > 2:
        raise InputError(f"{len(runs)} runs are given: one is shown, or two are compared; 'idx eval compare' takes more")
    with listen(Settings(corpora=(), port=port)) as listener:
        viewer = Viewer(runs, questions)
        shown = " and ".join(f"{run.folder} ({pluralize(len(run.lines), 'answer')})" for run in viewer.runs)
        note(f"{shown} on {server_url(listener)} until Ctrl-C")
        serve(viewer, listener)

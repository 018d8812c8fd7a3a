"""A line of ``idx`` read by the real parser, without running it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from wikidx.runtimes.cli.commands import app


def complaint(arguments: Sequence[str]) -> str:
    """Return the parser's error on a line, "" if there is none: every argument is parsed and its value converted.

    Do not pass ``--install-completion``: the parser itself carries it out, and changes the files of the user's shell.
    """
    assert "--install-completion" not in arguments
    command: Any = get_command(app)
    left, context, path = list(arguments), None, "idx"
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # --help
            while True:
                context = command.make_context(path, left, parent=context)
                if not hasattr(command, "commands"):
                    return ""
                name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
                path = f"{path} {name}"
    except Exception as error:
        if getattr(error, "exit_code", None) == 0:
            return ""
        if not hasattr(error, "format_message"):
            raise
        return f"idx {' '.join(arguments)}: {error.format_message()}"


def parse(arguments: Sequence[str]) -> None:
    """Raise ``AssertionError`` with the parser's error on a line, if any."""
    said = complaint(arguments)
    assert not said, said

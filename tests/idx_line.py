"""A line of ``idx`` read by the real parser, without running it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from runtimes.cli import app


def parse(arguments: Sequence[str]) -> None:
    """Have every argument parsed and its value converted; raise ``AssertionError`` with what the parser says if that fails."""
    said = io.StringIO()
    command: Any = get_command(app)
    left, context, path = list(arguments), None, "idx"
    try:
        with contextlib.redirect_stderr(said):
            while True:
                context = command.make_context(path, left, parent=context)
                if not hasattr(command, "commands"):
                    return
                name, found, left = command.resolve_command(context, [*context._protected_args, *context.args])
                command, path = found, f"{path} {name}"
    except SystemExit as stopped:
        raise AssertionError(f"idx {' '.join(arguments)}: {said.getvalue()}") from stopped
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise AssertionError(f"idx {' '.join(arguments)}: {error.format_message()}") from error

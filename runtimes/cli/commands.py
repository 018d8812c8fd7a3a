"""The table of commands, and the entry point ``idx``."""

from __future__ import annotations

import importlib
import io
import itertools
import logging
import os
import pkgutil
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from wikidx.base.errors import NO_THREAD, IdxError, InputError, escape_controls, explain_os_error, named_errors

from .ray_option import RayCommand
from .screen import fail, print_line

COMMANDS = {
    "list": ("listing:list_corpora", "List corpora, their indexes and sizes."),
    "build": ("build:build", "Build a corpus and its indexes."),
    "check": ("check:check", "Verify the files of a corpus by their checksums."),
    "remove": ("remove:remove", "Delete a corpus or some of its indexes."),
    "questions": ("questions:questions", "List and fetch published sets of questions."),
    "search": ("search:search", "Search a corpus."),
    "show": ("show:show", "Show a passage and those around it, or a document."),
    "tune": ("tune:tune", "Choose a pipeline of retrievers on questions."),
    "serve": ("serve:serve", "Serve searches over HTTP."),
    "ask": ("ask:ask", "Answer a question by a method."),
    "run": ("run:run", "Answer the questions of a file by a method."),
    "reproduce": ("reproduce:reproduce", "Make the runs of a paper's table, beside the paper's figures."),
    "view": ("view:view", "Show the questions of a run, or of two, in a browser."),
    "train-data": ("train_data:train_data", "Make a method's training data."),
    "mcp": ("mcp:mcp", "Offer searches to agents (Model Context Protocol)."),
    "doctor": ("doctor:doctor", "Describe this installation and machine, for bug reports."),
    "import lucene": ("import_:lucene", "Import a Lucene index."),
    "import embeddings": ("import_:embeddings", "Import embeddings as the vectors of an encoder."),
    "eval answers": ("eval_runs:answers", "Score the answers of a run."),
    "eval retrieval": ("eval_retrieval:retrieval", "Score the rankings of retrievers."),
    "eval compare": ("eval_runs:compare", "Compare runs on the questions that they share."),
    "eval folder": ("eval_runs:folder", "Score all runs in a folder as one table."),
    "eval self-knowledge": ("eval_runs:self_knowledge", "Make SKR's self-knowledge of two runs."),
}
"""Command -> (module and function in this folder, description in the list of commands)."""

_ENDED_BY_SIGPIPE = 141  # 128 + 13, as a shell says; the signal itself would also end a server when a client leaves


class Commands(TyperGroup):
    """A group of commands that imports a command's module only when the command is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - typer's copy of click
        """Return the command that the arguments name, after importing its module."""
        if self.name == "eval" and args[0] not in self.commands and (found := _command_for(args)):
            args = [found, *args]
        name, command, left = super().resolve_command(ctx, args)
        path = f"{name}" if ctx.parent is None else f"{self.name} {name}"
        return name, command_of(path) if path in COMMANDS else command, left


def _command_for(args: list[str]) -> str | None:
    """Return the ``idx eval`` command for runs that are named without a command; None if the first argument is no file or folder."""
    paths = list(itertools.takewhile(os.path.exists, args))
    is_run = bool(paths) and (os.path.isfile(paths[0]) or os.path.isfile(os.path.join(paths[0], "predictions.jsonl")))
    return None if not paths else "compare" if len(paths) > 1 else "answers" if is_run else "folder"


def command_of(path: str) -> Any:  # noqa: ANN401 - typer's copy of a click command
    """Import a command's module, and build its typer command; ``path`` is a key of ``COMMANDS``."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    function = pkgutil.resolve_name(f"{__package__}.{COMMANDS[path][0]}")
    epilog = "\n  ".join(("\b\nExamples:", *examples_of(path)))
    single.command(path.split()[-1], cls=RayCommand, epilog=epilog)(function)
    return get_command(single)


def examples_of(path: str) -> list[str]:
    """Return the examples of a command, which stand at the head of its module."""
    module = importlib.import_module(f"{__package__}.{COMMANDS[path][0].partition(':')[0]}")
    return re.findall(rf"^ +(idx {path}(?: .*)?)$", module.__doc__ or "", re.MULTILINE)


def _group(help_: str, *, name: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=Commands,
        help=help_,
        no_args_is_help=True,
        add_completion=name is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


app = _group("Build and search corpora of passages, from Wikipedia or from your own files, and answer questions from them.", name="idx")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print_line(f"idx {version('wikidx')}")
        raise typer.Exit


def _plug(references: list[str]) -> list[str]:
    if references:
        from wikidx.base.plugins import plug

        for reference in references:
            plug(reference)
    return references


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
    plugin: Annotated[
        list[str],
        typer.Option(metavar="FILE.py:NAME", callback=_plug, help="Load a plug-in, which is then known by its name; repeatable."),
    ] = [],  # noqa: B006 - typer copies it
) -> None: ...


_groups = {
    "": app,
    "import": _group("Import an existing Lucene index or published embeddings."),
    "eval": _group("Score answers and rankings by official metrics. A folder of runs, or a run, may be named without a command."),
}
for _path, (_, _summary) in COMMANDS.items():
    _group_name, _, _name = _path.rpartition(" ")
    _groups[_group_name].command(_name, help=_summary)(lambda: None)
for _name in ("import", "eval"):
    app.add_typer(_groups[_name], name=_name)


class _ClosedOutput(io.TextIOWrapper):
    """A standard output that the caller has closed: an error as soon as something is to be printed."""

    def write(self, text: str) -> int:
        raise InputError("standard output is closed: give it a file, or >/dev/null")


class LogFormatter(logging.Formatter):
    """A format of log lines, which may quote servers and files."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return escape_controls(super().format(record))


def main() -> None:
    """Run the command line; write an error as one line to standard error, and exit with status 2.

    If the reader of the output is gone, as behind ``| head -1``, say nothing, and exit as a program does that SIGPIPE ends.
    """
    sys.stdout = sys.stdout or _ClosedOutput(open(os.devnull, "rb"))  # None if the caller has closed it, as >&- does
    sys.stderr = sys.stderr or open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escapes characters that the terminal cannot show
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    # These modules log the device of a search, and what an earlier run left.
    for module in ("retrievers.opening", "runtimes.execution"):
        logging.getLogger(f"wikidx.{module}").setLevel(logging.INFO)
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    try:
        _run()
        return
    except BrokenPipeError:
        sys.exit(_ENDED_BY_SIGPIPE)
    except IdxError as error:  # some are also errors of a class below
        fail(str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and NO_THREAD not in str(error):
            raise
    except OSError as error:
        fail(explain_os_error(error))
    try:
        message = _memory_error()  # here the exception no longer holds memory
    except MemoryError:
        message = "not enough memory: give this process more"
    fail(message)


def _run() -> None:
    """Run the command line until all of its output is written; raise ``BrokenPipeError`` if the reader of the output is gone."""
    stdout = sys.stdout
    try:
        app(prog_name="idx")
    finally:
        try:
            with named_errors("standard output"):
                stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())  # Python writes what is left once more at its end
            raise
        if sys.stdout is not stdout:  # typer has caught the error, and put a stream in its place that hides others
            raise BrokenPipeError


def _memory_error() -> str:
    from wikidx.base.machine.memory import available_bytes, memory_bytes
    from wikidx.base.progress import format_bytes

    return (
        f"not enough memory: this process may use {format_bytes(memory_bytes())}, of which {format_bytes(available_bytes())} are free now; "
        "give it more memory and run the same command again; a build goes on from its finished parts"
    )

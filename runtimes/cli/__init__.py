"""The command line. ``main`` is the entry point ``idx``; one file a command, each thin: options in, library calls, lines out.

``examples`` are those of ``--help``, ``completion`` is what a shell completes.

Heavy packages are imported inside the commands, so that ``idx --help`` answers at once.

listing  build  check  remove  import_   corpora and their indexes    resolve  task  recall   which, what is done, how well they find
search  serve  mcp                       searches                     screen  trace           what is shown
ask  run  train_data                     methods                      method_options  question_options  ray_option   options of several
                                                       option_groups: dataclasses as options
eval_answers  eval_retrieval  eval_compare   scores                   eval_options            what they do alike
"""

from __future__ import annotations

import io
import logging
import sys

import typer

from wikidx.corpora.errors import IdxError

from . import ask, build, check, eval_answers, eval_compare, eval_retrieval, import_, listing, mcp, remove, run, search, serve, train_data
from .examples import examples_of
from .ray_option import RayCommand
from .screen import fail

app = typer.Typer(
    name="idx",
    help="Build and search passage corpora: Wikipedia as 100-word passages, or a file of your own; answer questions from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluation = typer.Typer(help="Score answers and rankings as the official evaluators do, with intervals.", no_args_is_help=True)
evaluation.command("answers", epilog=examples_of("eval answers"))(eval_answers.answers)
evaluation.command("retrieval", epilog=examples_of("eval retrieval"))(eval_retrieval.retrieval)
evaluation.command("compare", epilog=examples_of("eval compare"))(eval_compare.compare)
app.command("list", epilog=examples_of("list"))(listing.list_corpora)
app.command("build", cls=RayCommand, epilog=examples_of("build"))(build.build)
app.command("check", epilog=examples_of("check"))(check.check)
app.command("remove", epilog=examples_of("remove"))(remove.remove)
app.command("search", epilog=examples_of("search"))(search.search)
app.command("serve", cls=RayCommand, epilog=examples_of("serve"))(serve.serve)
app.command("ask", epilog=examples_of("ask"))(ask.ask)
app.command("run", epilog=examples_of("run"))(run.run)
app.command("train-data", epilog=examples_of("train-data"))(train_data.train_data)
app.command("mcp", epilog=examples_of("mcp"))(mcp.mcp)
app.add_typer(import_.app, name="import")
app.add_typer(evaluation, name="eval")


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character shows its number
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("wikidx.retrievers.opening").setLevel(logging.INFO)  # where an index is searched, and why there
    try:
        app(prog_name="idx")
    except IdxError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except KeyboardInterrupt:
        sys.exit(130)

"""The command line ``idx``: each command parses its options, calls the library and prints the result.

commands                                  the table of commands, and the entry point ``main``

listing  build  plan  check  remove  import_    commands on corpora and indexes
search  show  serve  tune  mcp            commands that search, and show passages
doctor  check_gpu                         command on the installation and the machine; comparisons of ``check --gpu``
questions  ask  run  reproduce  train_data commands on sets of questions, and commands that run methods
eval_runs  eval_retrieval  view           commands that evaluate and show runs

method_options  question_options  eval_options  ray_option    options of several commands
option_groups                             dataclasses as groups of options
completion                                shell completion of names
screen  trace                             terminal output

``idx --help`` starts fast: a command's module is imported when the command is called, and a heavy package when a function needs it.
"""

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C ends it silently, also while its modules are imported."""
    try:
        from .commands import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None

"""The command line: one file a command, each thin: options in, library calls, lines out.

commands     the table of commands with their examples, and main, the entry point ``idx``

listing  build  check  remove  import_   corpora and their indexes
search  serve  mcp                       searches                     screen  trace           what is shown
ask  run  train_data                     methods                      method_options  question_options  ray_option   options of several
                                                       option_groups: dataclasses as options; completion: options of names, which a shell completes
eval_runs  eval_retrieval                 scores                      eval_options            what they do alike

A command's module is imported when it is called, and heavy packages inside it, so that ``idx --help`` answers at once.
"""

from .commands import main

__all__ = ["main"]

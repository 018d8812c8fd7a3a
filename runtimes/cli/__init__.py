"""The command line: one thin file per command, which passes its options to the library and prints the results.

commands      the table of commands with their examples, and main, the entry point ``idx``

listing  build  check  remove  import_    corpora and their indexes
search  serve  mcp                        searches
doctor                                    the installation and the machine
ask  run  train_data                      methods
eval_runs  eval_retrieval                 scores

method_options  question_options  eval_options  ray_option    options of several commands
option_groups                             dataclasses as options
completion                                arguments and options for names, with shell completion
screen  trace                             terminal output

A command's module is imported when the command is called, and its functions import heavy packages, so that ``idx --help`` starts fast.
"""

from .commands import main

__all__ = ["main"]

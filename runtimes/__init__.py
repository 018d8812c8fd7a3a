"""Methods that answer questions, their evaluation and training data, and the command line.

llms/        language models: one batched interface, several backends
errors       errors of language models
assignments  NAME=VALUE -> options
questions/   questions, and readers of question files
methods/     RA-ISF, Self-Reasoning, RetroRAG, ReFeed and the baselines
execution/   execution of methods for many questions at once; results; runs on disk
evaluation/  scores of rankings and answers
experiments/ tables and figures of the papers as data, and their reproduction
training/    training data, made as in the papers
pages/       pages that show runs and answers
cli/         the command line ``idx``

The modules may import ``base``, ``corpora``, ``indexer`` and ``retrievers``.
"""

if __name__ != "wikidx.runtimes":
    raise ImportError("this folder is wikidx.runtimes: import it by that name")

"""Execution of methods: opens models and searchers by name, serves requests in waves, and writes runs to disk.

executor     many concurrent questions, in waves          wave       service of all questions' pending requests
results      the outcome of a question (answer, steps, cost) and its JSON
runs         a run on disk: settings, predictions         resumable  answers in a folder, resumed after interruption
opening      opens models and a searcher by name          identity   checksums and versions of models and indexes
assignments  NAME=VALUE -> options                        rehearsal  runs of a method without a model
"""

"""Execution of methods: models and searchers by name, requests in waves, and runs on disk.

executor     a method over many concurrent questions      wave       batched service of the pending requests
results      outcome of a question (answer, steps, cost) and its JSON
runs         a run on disk: settings, predictions         resumable  runs that resume after an interruption
opening      plan of a run: check, models, searcher       identity   checksums and versions of models and indexes
rehearsal    execution without a model
"""

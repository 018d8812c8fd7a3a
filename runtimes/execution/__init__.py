"""Execution of methods: models and searchers by name, concurrent questions, and runs on disk.

executor     a method over many concurrent questions      dispatching  queues of requests to models and searcher
results      outcome of a question (answer, steps, cost) and its JSON
runs         a run on disk: settings, predictions         resumable  runs that resume after an interruption
opening      plan of a run: check, models, searcher       identity   checksums and versions of models and indexes
rehearsal    execution without a model                   given      passages that come with questions, as a searcher
forgotten    requests that a method does not await       similarity   texts compared by an encoder
"""

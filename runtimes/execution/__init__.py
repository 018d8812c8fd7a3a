"""Execution of methods: from names to opened models and searchers, through waves of calls, to runs on disk.

executor     many questions at once, in waves          wave       the pending requests of all questions, served together
results      the outcome of a question: answer, steps, cost; its JSON
runs         a run on disk, resumed after interruption asking     questions asked in a folder that can be resumed
opening      names -> models and a searcher            identity   their checksums and versions
assignments  NAME=VALUE -> options                     rehearsal  a method run without a model
"""

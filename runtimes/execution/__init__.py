"""Execution of methods: from names to opened models and searchers, through waves of calls, to runs on disk.

executor     many questions at once, in waves          wave       what all of them wait for, served together
results      what comes of a question: answer, steps, cost; that as JSON
runs         a run on disk, resumed where it stopped   asking     questions asked in a folder that can be resumed
opening      names -> models and a searcher            identity   what tells them apart: checksums, versions
assignments  NAME=VALUE -> switches                    rehearsal  a method's course without a model
"""

"""The source files of a corpus, downloaded or local.

download  resumable, verified download of one file    sources  all source files of a corpus
"""

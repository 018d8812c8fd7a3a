"""Vectors of a corpus on disk.

file            written, and resumed
corpus_vectors  finished: read, and given rows scored exactly
"""

"""Vectors of a corpus on disk.

file            written, and resumed
corpus_vectors  finished: read, and exact scores of given rows
"""

"""Vectors of a corpus on disk.

file            vectors during a build, which can resume
corpus_vectors  finished vectors: reading, and exact scores of given rows
"""

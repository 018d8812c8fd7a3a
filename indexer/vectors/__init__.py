"""Vectors of a corpus on disk.

file            vectors during a build that can resume
corpus_vectors  finished vectors: reading, and exact scores of given rows
products        the inner loop of searches on a CPU
"""

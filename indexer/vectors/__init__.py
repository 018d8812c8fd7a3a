"""Vectors of a corpus on disk.

file       written, resumed, opened        corpus_vectors  the same, as indexes are built from them
rescoring  exact scores of given rows
"""

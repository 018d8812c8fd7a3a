"""Embeddings and indexes that others have published.

importing  vectors matched to rows, and verified    addresses  where they are
formats    how they are read                        pickles    without running anything
lucene     a Lucene index adopted
"""

"""Embeddings and indexes published by third parties.

importing  vectors matched to rows, and verified    addresses  download addresses
formats    readers of their formats                 pickles    unpickling without running code
lucene     adoption of a Lucene index
"""

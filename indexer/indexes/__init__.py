"""Kinds of index. Every kind has a line in a table of ``indexer/__init__.py`` and follows the contract in ``kinds``.

postings/  inverted passages, for indexes of terms       bm25/    BM25 with Lucene's scores, without Lucene
lucene/ an index of Lucene, by Pyserini
exact/  exact search directly over vectors            faiss/   FAISS's kinds: ivf, ivfpq, hnsw
quantized  int8 and binary                            approximate  search that all approximate kinds share
plugged    kinds by the user's own code
keys    top-k by integer keys, on any device
"""

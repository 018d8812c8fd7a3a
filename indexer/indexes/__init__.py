"""Kinds of index, one folder each; each has a line in a table of ``indexer/__init__.py``, and all have the contract in ``kinds``.

bm25/   BM25 that equals Lucene, without Lucene       lucene/  Lucene itself
exact/  exact search straight over vectors            faiss/   the kinds that FAISS has: flat, ivf, ivfpq, hnsw
"""

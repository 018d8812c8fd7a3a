"""BM25 with Lucene's scores, without Lucene, over ``postings``.

similarity  arithmetic of the scores           impacts     blocks of postings -> files, with impacts and exceptions
files       lengths and exceptions             scoring     scores of given rows
search      both passes of a query; their inner loops are in ``postings.upper_bounds``, ``postings.selection`` and ``scoring``
index       BM25Index, and its IndexKind
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

"""BM25 that equals Lucene, without Lucene.

similarity  the arithmetic of scores           inversion  rows -> pieces, resumable      merging  pieces -> the files
files       what the files hold, checksums     bounds     which rows may be among the best
scoring     what given rows score              search     the two together
index       BM25Index, and the kind for the table
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

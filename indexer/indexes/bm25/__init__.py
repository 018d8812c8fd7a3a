"""BM25 that equals Lucene, without Lucene.

similarity  the arithmetic of scores           inversion   rows -> pieces, resumable     merging  pieces -> the files
files       contents of the files              bounds      candidates from upper bounds
scoring     scores of given rows               search      both passes, and the k best
dictionary  distinct terms, numbered           index       BM25Index, and the kind for the table
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

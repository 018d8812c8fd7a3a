"""BM25 that equals Lucene, without Lucene.

similarity  arithmetic of the scores           inversion   rows -> blocks, resumable     merging  blocks -> index files
files       contents of the files              upper_bounds  candidate selection
scoring     scores of given rows               search      both passes, and top-k
dictionary  distinct terms, numbered           index       BM25Index, and its IndexKind
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

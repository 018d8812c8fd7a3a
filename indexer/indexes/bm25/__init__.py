"""BM25 with Lucene's scores, without Lucene.

similarity  arithmetic of the scores           inversion     rows -> blocks, resumable   merging  blocks -> index files
files       the files of an index              upper_bounds  selection of candidates
scoring     scores of given rows               search        selection, scoring and top-k
dictionary  numbered distinct terms            index         BM25Index, and its IndexKind
following   inversion while the passages are stored
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

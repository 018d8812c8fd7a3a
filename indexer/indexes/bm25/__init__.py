"""BM25 with Lucene's scores, without Lucene.

similarity  arithmetic of the scores           inversion     rows -> blocks, resumable   merging  blocks -> index files
files       the files of an index              cursors       terms block by block        upper_bounds  16-bit bounds of scores
candidates  rows and their threshold           selection     the candidates of a query
scoring     scores of given rows               search        selection, scoring and top-k
index       BM25Index, and its IndexKind       while_storing inversion while the passages are stored
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

"""BM25 that equals Lucene, without Lucene.

similarity  the arithmetic of scores           inversion  rows -> pieces, resumable      merging  pieces -> the files
files       what the files hold, checksums     search     the kernels of a search        index    BM25Index, and the kind for the table
"""

from .index import KIND, BM25Index

__all__ = ["KIND", "BM25Index"]

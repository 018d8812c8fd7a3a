"""Queries -> ranked passages. May import ``indexer`` and ``corpora``.

base      Retriever and Searcher (protocols), SearchOptions, ScoredPassage, Ranking
bm25  dense   queries -> Hits, over an open index      opening   names -> open retrievers and searchers
kernels   numba on plain arrays                        fusion    several ranked lists -> one: fuse, merge, dedup
searcher  LocalSearcher: the query path
"""

from .base import Found, Ranking, ScoredPassage, Searcher, SearchOptions

__all__ = ["Found", "Ranking", "ScoredPassage", "SearchOptions", "Searcher"]

"""Queries -> ranked passages. May import ``indexer`` and ``corpora``.

options   SearchOptions                                base      Retriever and Searcher (protocols), ScoredPassage, Ranking
bm25  dense   queries -> Hits, over an open index      cache     a retriever with an LRU cache of results
naming    "bm25+minilm" -> RetrieverName               opening   opens retrievers and searchers by name, each once
searcher  LocalSearcher: the query path                mcp/      searches as tools for agents (Model Context Protocol)
kernels   numba kernels on arrays                      fusion    combines ranked lists: fuse, merge, dedup
rerank    candidates reranked by the primary query     cross_encoder: networks that read a query with a passage
server/   search over HTTP, and a search page           client    wire  errors: ServerClient and RemoteSearcher
cluster/  vectors in ranges of rows on a Ray cluster     cancellation   bounds of a search: cancellation, deadline, partial
highlight      words that passages share with queries   timed_http   connections of both clients, with a limit on an answer's time
"""

from .options import SearchOptions

__all__ = ["RERANKERS", "SearchOptions"]

RERANKERS = {
    "simlm": "wikidx.retrievers.cross_encoder:SIMLM",
    "minilm-msmarco": "wikidx.retrievers.cross_encoder:MINILM",
    "bge-base": "wikidx.retrievers.cross_encoder:BGE_BASE",
}

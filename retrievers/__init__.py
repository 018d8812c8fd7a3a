"""Queries -> ranked passages. May import ``indexer`` and ``corpora``.

options   SearchOptions                                base      Retriever and Searcher (protocols), ScoredPassage, Ranking
bm25  dense   queries -> Hits, over an open index      cache     a retriever with an LRU cache of results
naming    "bm25+minilm" -> RetrieverName               opening   names -> open retrievers and searchers, each opened once
searcher  LocalSearcher: the query path                mcp/      searches as tools for agents (Model Context Protocol)
kernels   numba on plain arrays                        fusion    several ranked lists -> one: fuse, merge, dedup
rerank    candidates reranked by the primary query     cross_encoder: networks that read query and passage, by name
server/   searches over HTTP, and a page               client    wire  errors: ServerClient and RemoteSearcher for it
cluster/  vectors in ranges of rows on a Ray cluster     cancellation   bounds of a search: deadline, cancellation, partial
highlight      words that passages share with queries
"""

from .options import SearchOptions

__all__ = ["RERANKERS", "SearchOptions"]

RERANKERS = {
    "simlm": "wikidx.retrievers.cross_encoder:SIMLM",
    "minilm-msmarco": "wikidx.retrievers.cross_encoder:MINILM",
    "bge-base": "wikidx.retrievers.cross_encoder:BGE_BASE",
}

"""Retrieval: from queries to ranked passages. This package may import ``indexer``, ``corpora`` and ``base``.

options       SearchOptions                                    base          protocols and results of retrievers and searchers
bm25, dense   retrievers: queries -> rows and scores           cache         a retriever with an LRU cache of results
naming        "bm25+minilm" -> RetrieverName                   opening       opens retrievers and searchers by name
searcher      LocalSearcher: from queries to ranked passages   fusion        fuses, merges and deduplicates ranked lists
rerank        reranking of candidates by the primary query     kernels       numba kernels that combine ranked lists
rerankers/    networks and endpoints that score passages       highlight     words that passages share with queries
client        RemoteSearcher                                   wire, errors  searches, rankings and errors as JSON
server/       search over HTTP, and a search page              mcp/          search tools for agents (Model Context Protocol)
cluster/      vector search on a Ray cluster                   cancellation  bounds of a search: cancellation, deadline
build_and_open  passages, file or name -> an open searcher     async_client  AsyncRemoteSearcher, for asyncio
trec_lines    lines of TREC runs                               adapters/     searchers as components of other frameworks
pipelines/    notation, run and files of pipelines             vector_queries  queries that are vectors
refusals      queries that are refused                         reopening     pickling and copying of searchers
compiling     compiles kernels in processes of their own       documents     passages around a hit, and of a document
collapsing    ranked passages -> documents
"""

if __name__ != "wikidx.retrievers":
    raise ImportError("this folder is wikidx.retrievers: import it by that name")

from .options import SearchOptions

__all__ = ["SearchOptions"]

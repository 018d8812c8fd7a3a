"""Indexes over the terms of passages, and over their vectors. Of the other packages it imports only ``base`` and ``corpora``.

base       Hits, Encoder, VectorIndex, LexicalIndex, array types      naming     bm25, contriever, contriever-ivfpq -> IndexName
analysis/  text -> terms, equal to Lucene's                           networks/  networks of checkpoints
encoders/  a table of families, with a shared forward pass
embedding/ passages -> vectors, on one device, several or a cluster   vectors/   vectors of a corpus on disk
indexes/   bm25, lucene, exact search, FAISS, and their contract      published/ embeddings and indexes of third parties
catalog    paths, manifests and usability of indexes                  build      build_index() and open_index()
build_spec what to build, and what of it exists                       planning   plan and steps of a complete build
recall     recall of indexes against exact search                     scope      the rows that a search may return
"""

if __name__ != "wikidx.indexer":
    raise ImportError("this folder is wikidx.indexer: import it by that name")

from .base import Encoder, Hits, LexicalIndex, SearchParams, VectorIndex

__all__ = ["INDEXES", "VECTOR_INDEXES", "Encoder", "Hits", "SearchParams", "LexicalIndex", "VectorIndex"]

INDEXES = {
    "bm25": "wikidx.indexer.indexes.bm25:KIND",
    "lucene": "wikidx.indexer.indexes.lucene.index:KIND",
}
VECTOR_INDEXES = {  # kinds of index over vectors; an index is named <encoder>-<kind>
    "ivf": "wikidx.indexer.indexes.faiss.ivf:IVF",
    "ivfpq": "wikidx.indexer.indexes.faiss.ivf:IVFPQ",
    "hnsw": "wikidx.indexer.indexes.faiss.hnsw:HNSW",
    "int8": "wikidx.indexer.indexes.quantized:INT8",
    "binary": "wikidx.indexer.indexes.quantized:BINARY",
}

"""Indexes over the terms of passages, and over their vectors. Of the other packages it imports only ``base`` and ``corpora``.

base       Hits, Encoder, VectorIndex, LexicalIndex, array types      naming     bm25, contriever, contriever-ivfpq -> IndexName
analysis/  text -> terms, equal to Lucene's                           networks/  networks of checkpoints
encoders/  one file per family, with a shared forward pass
embedding/ passages -> vectors, on one device, several or a cluster   vectors/   vectors of a corpus on disk
indexes/   bm25, lucene, exact search, FAISS, and their contract      published/ embeddings and indexes of third parties
catalog    paths, manifests and usability of indexes                  build      build_index() and open_index()
build_spec what to build, and what of it exists                       planning   plan and steps of a complete build
recall     recall of indexes against exact search                     scope      the rows that a search may return
"""

if __name__ != "wikidx.indexer":
    raise ImportError("this folder is wikidx.indexer: import it by that name")

from .base import Encoder, Hits, LexicalIndex, SearchParams, VectorIndex

__all__ = ["ENCODERS", "INDEXES", "VECTOR_INDEXES", "Encoder", "Hits", "SearchParams", "LexicalIndex", "VectorIndex"]

ENCODERS = {
    "contriever": "wikidx.indexer.encoders.contriever:SPEC",
    "contriever-base": "wikidx.indexer.encoders.contriever:BASE",
    "dpr": "wikidx.indexer.encoders.dpr:SPEC",
    "dpr-multiset": "wikidx.indexer.encoders.dpr:MULTISET",
    "dpr-since-2021": "wikidx.indexer.encoders.dpr:SINCE_2021",
    "gtr": "wikidx.indexer.encoders.gtr:SPEC",
    "gtr-base": "wikidx.indexer.encoders.gtr:SPEC",
    "gtr-large": "wikidx.indexer.encoders.gtr:LARGE",
    "gtr-xl": "wikidx.indexer.encoders.gtr:XL",
    "gtr-xxl": "wikidx.indexer.encoders.gtr:XXL",
    "simlm": "wikidx.indexer.encoders.simlm:SPEC",
    "minilm": "wikidx.indexer.encoders.minilm:SPEC",
    "e5": "wikidx.indexer.encoders.popular:E5",
    "bge": "wikidx.indexer.encoders.popular:BGE",
    "qwen3": "wikidx.indexer.encoders.popular:QWEN3",
    "bge-m3": "wikidx.indexer.encoders.popular:BGE_M3",
    "multilingual-e5": "wikidx.indexer.encoders.popular:MULTILINGUAL_E5",
    "multilingual-e5-small": "wikidx.indexer.encoders.popular:MULTILINGUAL_E5_SMALL",
    "multilingual-e5-large": "wikidx.indexer.encoders.popular:MULTILINGUAL_E5_LARGE",
    "nomic": "wikidx.indexer.encoders.popular:NOMIC",
    "arctic-v2": "wikidx.indexer.encoders.popular:ARCTIC_V2",
    "embeddinggemma": "wikidx.indexer.encoders.popular:EMBEDDINGGEMMA",
    "mxbai": "wikidx.indexer.encoders.popular:MXBAI",
    "mpnet": "wikidx.indexer.encoders.popular:MPNET",
    "gte-modernbert": "wikidx.indexer.encoders.popular:GTE_MODERNBERT",
    "modernbert-embed": "wikidx.indexer.encoders.popular:MODERNBERT_EMBED",
    "none": "wikidx.indexer.encoders.none:SPEC",  # imported vectors without an encoder
}
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

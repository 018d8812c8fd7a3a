"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

base       Hits, Encoder, VectorIndex, LexicalIndex, array aliases    naming     bm25, contriever, contriever-ivfpq -> IndexName
analysis/  text -> terms, as Lucene's                                 encoders/  one family a file over one forward pass
embedding/ passages -> vectors, on one device, several or a cluster   vectors/   vectors of a corpus on disk
indexes/   bm25, lucene, exact search, FAISS, and their contract      published/ embeddings and indexes of others
catalog    paths and manifests of indexes, and which are usable       build      build_index() and open_index()
planning   a whole build: what it needs, and its steps                estimate   disk, memory and time of each step
page_checks  checksums of pages, compared before they are read        row_range  some rows of an index over vectors
recall/    recall of indexes against exact search                     machine/   memory, threads, processes, devices, compiling
"""

from .base import Encoder, Hits, LexicalIndex, SearchParams, VectorIndex

__all__ = ["ENCODERS", "INDEXES", "VECTOR_INDEXES", "Encoder", "Hits", "SearchParams", "LexicalIndex", "VectorIndex"]

ENCODERS = {
    "contriever": "indexer.encoders.contriever:SPEC",
    "contriever-base": "indexer.encoders.contriever:BASE",
    "dpr": "indexer.encoders.dpr:SPEC",
    "dpr-multiset": "indexer.encoders.dpr:MULTISET",
    "dpr-since-2021": "indexer.encoders.dpr:SINCE_2021",
    "gtr": "indexer.encoders.gtr:SPEC",
    "gtr-base": "indexer.encoders.gtr:SPEC",
    "gtr-large": "indexer.encoders.gtr:LARGE",
    "gtr-xl": "indexer.encoders.gtr:XL",
    "gtr-xxl": "indexer.encoders.gtr:XXL",
    "simlm": "indexer.encoders.simlm:SPEC",
    "minilm": "indexer.encoders.minilm:SPEC",
    "e5": "indexer.encoders.e5:SPEC",
    "bge": "indexer.encoders.bge:SPEC",
}
INDEXES = {
    "bm25": "indexer.indexes.bm25:KIND",
    "lucene": "indexer.indexes.lucene.index:KIND",
}
VECTOR_INDEXES = {  # over an encoder's vectors: an index of them is named <encoder>-<kind>
    "flat": "indexer.indexes.faiss.flat:FLAT",
    "flat-fp16": "indexer.indexes.faiss.flat:FLAT_FP16",
    "sq8": "indexer.indexes.faiss.flat:SQ8",
    "ivf": "indexer.indexes.faiss.ivf:IVF",
    "ivfpq": "indexer.indexes.faiss.ivf:IVFPQ",
    "hnsw": "indexer.indexes.faiss.hnsw:HNSW",
}

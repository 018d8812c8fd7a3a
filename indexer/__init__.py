"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

base       Hits, Encoder, VectorIndex, LexicalIndex, array aliases
naming     names of indexes: bm25, contriever, contriever-ivfpq
analysis/  text -> terms, as Lucene's             compiled   how inner loops are compiled
dictionary distinct terms, numbered, in arrays    encoders/  one family a file over one forward pass
embed      store -> vectors, on all devices       pipeline   one device's share of that
batching   which texts are encoded together       devices    where, and in which numbers
workers    work done ahead, in processes          cluster/   the same on the nodes of a Ray cluster
published  import of others' embeddings           published_addresses, embedding_formats, pickles  where they are, how they are read
vectors    the file of vectors while it is made   corpus_vectors  the same, as it is searched and indexed
rescoring  exact scores of given rows             page_checks  what is read first is compared with its checksum
indexes/   one kind a file or folder, and their contract
placement  where vectors are searched, and why    memory     how much of it a process may have
row_range  some rows of an index over vectors     recall     of an index against exact search
recall_report  the same for all indexes of a corpus, written beside them and drawn by recall_plot
jvm        Java, and loops inside it: java_functions
estimate   what a build will need
planning   a whole build, from a corpus's name to its indexes: what it needs, and its steps
catalog    where indexes are, their manifests, and which are usable
build      build_index() and open_index(): the only writer and reader of index directories
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
    "lucene": "indexer.indexes.lucene:KIND",
}
VECTOR_INDEXES = {  # over an encoder's vectors: an index of them is named <encoder>-<kind>
    "flat": "indexer.indexes.faiss_flat:FLAT",
    "flat-fp16": "indexer.indexes.faiss_flat:FLAT_FP16",
    "sq8": "indexer.indexes.faiss_flat:SQ8",
    "ivf": "indexer.indexes.faiss_ivf:IVF",
    "ivfpq": "indexer.indexes.faiss_ivf:IVFPQ",
    "hnsw": "indexer.indexes.faiss_hnsw:HNSW",
}

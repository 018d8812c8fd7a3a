"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

errors     what indexes add to the error tree     base      Hits, Encoder, VectorIndex, LexicalIndex, array aliases
analysis/  text -> terms, as Lucene's             encoders/ one family a file over one forward pass
embed      store -> vectors, on all devices       pipeline  one device's share: batching, workers, devices it is named by
vectors    shards on disk                         published import of embeddings: embedding_formats, pickles, addresses
corpus_vectors  as indexes are built from them    mapping, rescoring  mapped into memory, for exact scores of given rows
vector_kind  what a kind of vector index is       naming    names of indexes: bm25, contriever, contriever-ivfpq
placement  where vectors are searched, and why    recall    of an index against exact search
compiled   how inner loops are compiled           dictionary  distinct terms, numbered, in plain arrays
indexes/   one kind a file or folder, and the selection of the k best
jvm        Java, and loops inside it (java_functions)
estimate   what a build will need                row_range  one index cut into ranges of rows
cluster/   embedding on the nodes of a Ray cluster
build      build_index() and open_index(): the only writer and reader of index directories
"""

from .base import Encoder, Hits, Knobs, LexicalIndex, VectorIndex

__all__ = ["ENCODERS", "INDEXES", "VECTOR_INDEXES", "Encoder", "Hits", "Knobs", "LexicalIndex", "VectorIndex"]

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

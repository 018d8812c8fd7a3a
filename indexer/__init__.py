"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

errors     what indexes add to the error tree     base      Hits, Encoder, VectorIndex, LexicalIndex, array aliases
analysis/  text -> terms, as Lucene's             encoders/ one family a file over one forward pass
embed      store -> vectors, on all devices       pipeline  one device's share: batching, workers, devices it is named by
vectors    shards on disk                         published import of embeddings: embedding_formats, pickles, addresses
compiled   how inner loops are compiled           dictionary  distinct terms, numbered, in plain arrays
indexes/   one kind a file or folder, and the selection of the k best
jvm        Java, and loops inside it (java_functions)
estimate   what a build will need
build      build_index() and open_index(): the only writer and reader of index directories
"""

from .base import Encoder, Hits, LexicalIndex, VectorIndex

__all__ = ["ENCODERS", "INDEXES", "Encoder", "Hits", "LexicalIndex", "VectorIndex"]

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

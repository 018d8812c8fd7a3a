"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

errors     what indexes add to the error tree     base      Hits, Encoder, VectorIndex, LexicalIndex, array aliases
analysis   text -> terms                          encoders/ one family a file over one forward pass
embed      store -> vector shards, resumable      indexes/  one kind a file, and the selection of the k best
jvm        Java, and loops inside it (java_functions)
build      build_index() and open_index(): the only writer and reader of index directories
"""

from .base import Encoder, Hits, LexicalIndex, VectorIndex

__all__ = ["ENCODERS", "INDEXES", "Encoder", "Hits", "LexicalIndex", "VectorIndex"]

ENCODERS = {
    "minilm": "indexer.encoders.minilm:SPEC",
}
INDEXES = {
    "bm25": "indexer.indexes.bm25:KIND",
    "lucene": "indexer.indexes.lucene:KIND",
}

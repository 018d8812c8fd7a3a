"""Indexes over a corpus: lexical, and dense over vectors that an encoder made. May import ``corpora``.

errors     what indexes add to the error tree     base      Hits, Encoder, VectorIndex, LexicalIndex, array aliases
analysis/  text -> terms, as Lucene's             encoders/ one family a file over one forward pass
embed      store -> vector shards, resumable      indexes/  one kind a file or folder, and the selection of the k best
compiled   how inner loops are compiled           dictionary  distinct terms, numbered, in plain arrays
jvm        Java, and loops inside it (java_functions)
estimate   what a build will need
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

"""A dense retriever without a network: a text's vector is the sum of its words', which are random but always the same.

All components are small whole numbers: their products add up exactly in any order, so that scores can be compared bit by bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors
from wikidx.retrievers.dense import DenseRetriever

DIM = 24
_MAX_WORDS = 16


class WordEncoder:
    """Remembers which queries it encoded."""

    dim = DIM

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        self.encoded += queries
        return np.stack([_vector(query) for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        return np.stack([_vector(f"{passage.title} {passage.text}") for passage in passages])


def _vector(text: str) -> Vectors:
    words = text.lower().split()[:_MAX_WORDS]
    vectors = [np.random.default_rng(zlib.crc32(word.encode())).integers(-9, 10, DIM) for word in words]
    total: Vectors = np.sum(vectors, axis=0).astype(np.float32)
    return total


def dense_over(store: PassageStore, *, missing: Sequence[int] = (), dtype: str = "float32") -> DenseRetriever:
    """Return the retriever over a store's passages, whose vectors are in memory."""
    vectors = WordEncoder().encode_passages(list(store.read())).astype(dtype)
    vectors[list(missing)] = 0
    without = np.array(missing, dtype=np.int64)
    exact = CorpusVectors(vectors, "float32", without, "")  # type: ignore[arg-type]  # an array that is not checked
    return DenseRetriever(WordEncoder(), ExactIndex(vectors, missing=without), exact)

"""Groups of engines that are compared with each other, and the inputs of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.engines.bm25s_package import has_stemmer


@dataclass(frozen=True, slots=True)
class Group:
    """Engines that do the same work.

    Attributes:
        title: above their table.
        engines: name in tables, by name in ``engines.kinds``; this project's first.
        sizes: batch sizes measured besides all questions in one batch.
    """

    title: str
    engines: Mapping[str, str]
    sizes: tuple[int, ...] = ()


GROUPS = {
    "bm25": Group(
        "BM25, from questions to passages",
        {"bm25": "idx bm25", "bm25s": "bm25s, terms ready", "bm25s-strings": "bm25s", "pyserini": "Pyserini"},
    ),
    "dense": Group(
        "MiniLM, from questions to passages",
        {"minilm": "idx minilm", "sentence-transformers": "sentence-transformers"},
    ),
    "vectors": Group(
        "MiniLM's vectors, from query vectors to passages",
        {"exact": "idx exact", "faiss-best": "FAISS at its best", "faiss": "FAISS with defaults", "semantic-search": "semantic_search"},
        sizes=(1, 8, 32, 128, 512),
    ),
}

_GIVEN = {
    "bm25": "strings; kernels compiled before",
    "bm25s": "numba backend, n_threads, the terms of idx's analysis; making them is not timed",
    "bm25s-strings": "strings; numba backend, n_threads, its own tokenizer with English stop words and {stems}",
    "pyserini": "strings; batch_search with the same number of threads; search for single questions; Lucene's index without texts",
    "minilm": "strings; its own batches",
    "sentence-transformers": "strings; encode at its fastest batch size of 8 to 128, semantic_search as below",
    "exact": "query vectors",
    "faiss-best": "query vectors; IndexFlatIP, the fastest of four blocks and up to three piece sizes for each batch, OpenMP",
    "faiss": "query vectors; IndexFlatIP, one batch, OpenMP",
    "semantic-search": "query vectors; inner product, fastest chunk of 100, 500 and 5,000 queries",
}


def describe_inputs(engine: str) -> str:
    """Return a description of an engine's inputs."""
    return _GIVEN[engine].format(stems="PyStemmer's stems" if has_stemmer() else "no stemmer (PyStemmer is not installed)")

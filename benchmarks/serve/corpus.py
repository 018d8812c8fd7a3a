"""Corpus of ``benchmarks.serve``: wiki_intro with BM25, random vectors for its passages, questions.

Random vectors cost a search as much as real ones; their results are meaningless. They are imported as those of an encoder, which is
replaced by ``RandomEncoder``, so that the time of a forward pass hides nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.anserini import PYSERINI
from benchmarks.engines.corpus import load_corpus, real_corpus, write_questions
from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.synthetic import data_folder
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.sample import CORPUS as SAMPLE
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.build import build_index, open_vector_index
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.formats import add_checksums, find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.opening import open_retriever

DENSE = "minilm"  # the encoder whose vectors are replaced by random ones
DIM = 384
_FLAT = "random.faiss"
_QUESTIONS = "questions.json"


class RandomEncoder:
    """Maps every text deterministically to a random vector of length 1."""

    dim = DIM

    def __init__(self) -> None:
        self._known: dict[str, Vectors] = {}

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 vectors, shape (len(queries), DIM)."""
        return np.array([self._vector(query) for query in queries], dtype=np.float32).reshape(len(queries), DIM)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), DIM)."""
        return self.encode_queries([passage.text for passage in passages])

    def _vector(self, query: str) -> Vectors:
        if query not in self._known:
            vector = np.random.default_rng(zlib.crc32(query.encode())).standard_normal(DIM, dtype=np.float32)
            self._known[query] = vector / np.linalg.norm(vector)
        return self._known[query]


def prepare(work: Path, passages: Path | None, questions: Path | None, *, dense: bool, peers: bool) -> Path:
    """Build all missing parts, of wiki_intro unless other passages are given; return the folder with the data home."""
    corpus = real_corpus(work) if passages is None else load_corpus(passages, work)
    use_data_home(corpus.folder)
    store = open_store(NAME)
    build_index(NAME, "bm25", store)
    build_store(SAMPLE, StoreOptions())
    build_index(SAMPLE.name, "bm25", open_store(SAMPLE.name))
    if not (corpus.folder / _QUESTIONS).exists():
        write_questions(questions or data_folder() / "wiki_intro" / "queries.hybridqa_dev.jsonl.gz", corpus.folder / _QUESTIONS)
    if dense:
        _write_random(corpus.folder / _FLAT, len(store))
        source = add_checksums(find_embeddings(corpus.folder / _FLAT, "flat"))
        import_vectors(NAME, encoder_spec(DENSE), store, source, ImportOptions())
    if peers and not (corpus.folder / "anserini").exists():
        PYSERINI.prepare(corpus.folder)
        PYSERINI.build(corpus.folder, 2)
    return corpus.folder


def read_questions(folder: Path) -> list[str]:
    """Return the questions."""
    questions: list[str] = json.loads((folder / _QUESTIONS).read_bytes())
    return questions


def flat_index(folder: Path) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return FAISS's flat index of the random vectors."""
    import faiss

    return faiss.read_index(str(folder / _FLAT))


def open_benchmark_retriever(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
    """Open a retriever as the server does, except for the encoder."""
    if name != DENSE:
        return open_retriever(corpus, name, store, device=device)
    return DenseRetriever(RandomEncoder(), open_vector_index(corpus, name, store))


def _write_random(path: Path, n: int) -> None:
    """Write n random vectors of length 1 as FAISS's flat index."""
    import faiss

    if path.exists():
        return
    vectors = np.random.default_rng(0).standard_normal((n, DIM), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(DIM)
    index.add(vectors)
    faiss.write_index(index, str(path.with_suffix(".unfinished")))
    path.with_suffix(".unfinished").rename(path)

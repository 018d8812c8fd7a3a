"""Made corpus of ``benchmarks.gpu``: passages of random sentences, and random vectors, imported twice.

Random vectors cost an exact search as much as real ones; their results are meaningless. They are those of ``none``, whose queries are
vectors, and of ``bert``, a BERT with random weights that encodes texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.kinds import NAME
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.runtimes.gpu_check.networks import save_bert, words

GIVEN, ENCODED = "none", "bert"  # the retrievers
_N_SENTENCES = 8_192
_SENTENCE_WORDS = 12
_PASSAGE_SENTENCES = 8
_BLOCK = 1 << 14


def sentences(n: int, seed: int) -> list[str]:
    """Return n texts of some random words."""
    known, _ = words()
    numbers = np.random.default_rng(seed).integers(0, len(known), (n, _SENTENCE_WORDS))
    return [" ".join([known[number] for number in line]) for line in numbers.tolist()]


def random_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return n random vectors of length 1."""
    vectors: Vectors = np.random.default_rng(seed).standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def prepare(folder: Path, n: int, sizes: Mapping[str, int]) -> None:
    """Build in the data home what is missing: the store, the network, and the vectors, which have as many components as it."""
    build_store(Corpus(name=NAME, summary="made passages", files=(), read=lambda files, on_bad: _passages(n), n_passages=n), StoreOptions())
    if not (folder / ENCODED).exists():
        save_bert(folder / ENCODED, **sizes)
    path = folder / "vectors.npy"
    if not path.exists():
        _write_vectors(path, n, sizes["hidden"])
    store = open_store(NAME)
    for encoder in (GIVEN, name_encoder(str(folder / ENCODED))):
        import_vectors(NAME, encoder_spec(encoder), store, find_embeddings(path), ImportOptions())


def _passages(n: int) -> Iterator[LocatedPassage]:
    parts = sentences(_N_SENTENCES, 0)
    for start in range(0, n, _BLOCK):
        chosen: Sequence[Sequence[int]] = np.random.default_rng(start).integers(0, len(parts), (_BLOCK, _PASSAGE_SENTENCES)).tolist()
        for number, line in enumerate(chosen[: n - start], start):
            yield LocatedPassage(Passage(str(number), f"passage {number}", ". ".join([parts[part] for part in line])), "made", number)


def _write_vectors(path: Path, n: int, dim: int) -> None:
    """Write random float16 vectors, several blocks at a time."""
    array: Any = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, dim))

    def fill(start: int) -> None:
        stop = min(start + _BLOCK, n)
        array[start:stop] = random_vectors(stop - start, dim, start)

    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, range(0, n, _BLOCK)))
    array.flush()

"""Every kind of artifact: how it is built, and a reading of all that it holds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.indexer.made_vectors import clustered
from wikidx.base.progress import Progress
from wikidx.corpora.build import StoreOptions, build_store, open_store, skipped_records, store_path
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import LocatedPassage, Span
from wikidx.corpora.store.frames import train
from wikidx.indexer.base import SearchParams, Vectors
from wikidx.indexer.build import build_index, open_lexical_index, open_vector_index, open_vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.faiss.library import load_faiss
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors

CORPUS, ENCODER = "made", "minilm"  # nothing is encoded: only the encoder's name is used
N, DIM = 600, 16
N_MISSING = 7  # rows without a vector
_WORDS = "river whale ocean fox bell stone café naïve king red deep metal".split()
_SMALL = {  # so that these few rows are many units of work
    "corpora.store.writer._BATCH_PASSAGES": 150,
    "corpora.store.columns.BATCH_ROWS": 150,
    "indexer.vectors.corpus_vectors.BATCH_ROWS": 150,
    "indexer.indexes.quantized.BATCH_ROWS": 150,
    "indexer.indexes.faiss.ivf.BATCH_ROWS": 150,
    "indexer.indexes.faiss.ivf._SHARD_BATCHES": 1,
    "indexer.published.formats.BLOCK_ROWS": 150,
    "indexer.published.arrays.BLOCK_ROWS": 150,
}


@contextlib.contextmanager
def using(home: Path) -> Iterator[None]:
    """Use a data home, and do work in small units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        for name, value in _SMALL.items():
            patch.setattr(f"wikidx.{name}", value)
        patch.setattr("wikidx.corpora.store.writer.train", partial(train, least_bytes=0))
        yield


def write_sources(folder: Path, seed: int) -> None:
    """Write the files that a corpus and its vectors are built from: records, one of them bad, and a FAISS index that lacks some rows."""
    rng = np.random.default_rng(seed)
    lines = [
        json.dumps({"id": str(n), "title": f"T{n // 4}", "text": " ".join(rng.choice(_WORDS, 12)) + f" {rng.bytes(40).hex()} {n}"})
        for n in range(N)
    ]
    (folder / "passages.jsonl").write_text("\n".join([*lines[:99], "no record", *lines[99:]]))
    vectors, faiss = clustered(N - N_MISSING, DIM, seed), load_faiss()
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
    index.add_with_ids(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.arange(N_MISSING, N))
    faiss.write_index(index, str(folder / "flat.faiss"))


class Artifact(NamedTuple):
    """A kind of artifact over the corpus.

    Attributes:
        name: of the index, or "passages".
        build: builds it from the sources in a folder, or replaces what is there.
        open: opens it, and returns a function whose value depends on everything in it.
    """

    name: str
    build: Callable[[Path, bool, Progress], object]
    open: Callable[[], Callable[[], object]]

    def read(self) -> object:
        """Open it, and return the value."""
        return self.open()()

    @property
    def path(self) -> Path:
        """Its directory."""
        return store_path(CORPUS) if self.name == "passages" else index_ref(CORPUS, self.name).path


def _build_store(sources: Path, force: bool, progress: Progress) -> object:
    corpus = custom_corpus(sources / "passages.jsonl", CORPUS, ReadOptions(file_format="jsonl"))
    placed = dataclasses.replace(corpus, read=lambda files, on_bad: map(_placed, corpus.read(files, on_bad)))
    return build_store(placed, StoreOptions(skip_bad=True, replace=force, rebuild=force), storing=progress)


def _placed(record: LocatedPassage) -> LocatedPassage:
    """Give a passage a place in a document of four, which its title names; the first ones have none."""
    number = int(record.passage.id)
    span = Span(record.passage.title, number % 4 * 90, number % 4 * 90 + len(record.passage.text), number % 3, f"{number} > café")
    return record._replace(span=span if number >= 200 else None)


def _open_store() -> Callable[[], object]:
    store, skipped = open_store(CORPUS), list(skipped_records(CORPUS))

    def read() -> object:
        titles = [store.rows_with_title(title).tolist() for title in ("none", "T0", f"T{N // 4 - 1}")]
        ids = store.rows_of(["none", *map(str, range(N))]).tolist()
        documents = [store.find_document(title) for title in ("none", "T50", f"T{N // 4 - 1}")]
        assert documents == [None, range(200, 204), range(N - 4, N)]
        return [store.get_many(range(N)), ids, store.spans(range(N)), store.first_rows.tolist(), titles, store.text_key.tolist(), skipped]

    return read


def _import_vectors(sources: Path, force: bool, progress: Progress) -> object:
    spec = dataclasses.replace(encoder_spec(ENCODER), dim=DIM)
    options = ImportOptions(allow_missing=True, force=force)
    return import_vectors(CORPUS, spec, open_store(CORPUS), find_embeddings(sources / "flat.faiss"), options, progress)


def _queries() -> Vectors:
    return clustered(6, DIM, 5)


def _open_vectors() -> Callable[[], object]:
    store = open_store(CORPUS)
    index, rescorer = open_vector_index(CORPUS, ENCODER, store), open_vectors(CORPUS, ENCODER, store)
    assert rescorer is not None

    def read() -> object:
        hits = index.search(_queries(), N)
        return [hits.rows.tolist(), hits.scores.tolist(), rescorer.scores(_queries(), np.tile(np.arange(N), (6, 1))).tolist()]

    return read


def _bm25() -> Artifact:
    def build(sources: Path, force: bool, progress: Progress) -> object:
        return build_index(CORPUS, "bm25", open_store(CORPUS), force=force, progress=progress)

    def opened() -> Callable[[], object]:
        index = open_lexical_index(CORPUS, "bm25", open_store(CORPUS))
        return lambda: [part.tolist() for part in index.search([*_WORDS, "t3 t4 t149", "599 17", "nothing"], N)]

    return Artifact("bm25", build, opened)


def _vector_index(kind: str, **parameters: Any) -> Artifact:  # noqa: ANN401 - numbers
    name = f"{ENCODER}-{kind}"

    def build(sources: Path, force: bool, progress: Progress) -> object:
        return build_index(CORPUS, name, open_store(CORPUS), force=force, progress=progress)

    def opened() -> Callable[[], object]:
        index, params = open_vector_index(CORPUS, name, open_store(CORPUS)), SearchParams(refine=0, **parameters)
        return lambda: [part.tolist() for part in index.search(_queries(), N, params)]

    return Artifact(name, build, opened)


ARTIFACTS = (  # each is built from those before it
    Artifact("passages", _build_store, _open_store),
    _bm25(),
    Artifact(ENCODER, _import_vectors, _open_vectors),
    _vector_index("int8"),
    _vector_index("binary"),
    _vector_index("ivf", nprobe=8),
    _vector_index("ivfpq", nprobe=8),
    _vector_index("hnsw", ef_search=N),
)


def build_all(home: Path, sources: Path) -> None:
    """Build every artifact in a home."""
    with using(home):
        for artifact in ARTIFACTS:
            artifact.build(sources, False, lambda done, total: None)

"""Indexes over the vectors of some rows of a corpus: what one of several machines holds. Rows and scores are those of the whole index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from wikidx.corpora.errors import ArtifactMismatch

from .base import DEFAULT_PARAMS, NO_ROW, Hits, Placement, SearchParam, SearchParams, VectorIndex, Vectors
from .catalog import IndexRef, index_manifest, index_path, index_ref
from .indexes.exact.index import open_exact
from .indexes.kinds import OpenOptions
from .vectors.corpus_vectors import CorpusVectors, corpus_vectors, vectors_identity
from .vectors.rescoring import Rescorer


class IndexIdentity(NamedTuple):
    """What tells an index from all others that may come to lie at its place.

    Attributes:
        fingerprint: of the corpus.
        files: sha256 of the checksums of its files.
        vectors: the same of the vectors that rows are scored again from; empty if there are none.
        n_rows: rows of the corpus.
    """

    fingerprint: str
    files: str
    vectors: str
    n_rows: int


def index_identity(corpus: str, name: str) -> IndexIdentity:
    """Return what index is there.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactDamaged: see ``index_manifest``.
    """
    manifest = index_manifest(corpus, name, None)
    vectors = ""
    ref = index_ref(corpus, name)
    if ref.vectors.is_built:
        vectors = vectors_identity(ref.vectors.manifest(manifest.fingerprint))
    return IndexIdentity(manifest.fingerprint, vectors_identity(manifest), vectors, manifest.count("rows"))


def check_identity(corpus: str, name: str, expected: IndexIdentity) -> None:
    """Raise ``ArtifactMismatch`` unless the index that is here is the one that was expected."""
    found = index_identity(corpus, name)
    for what, here, there in zip(("passages", "files", "vectors", "rows"), found, expected, strict=True):
        if here != there:
            raise ArtifactMismatch(
                f"{index_path(corpus, name)} is another index than the one that is served: its {what} are {here!s:.12}, not {there!s:.12}: "
                "let all machines see the same data home, and start again"
            )


class VectorRange:
    """Exact search in some rows, which the index counts from ``first_row``, by their numbers in the corpus."""

    def __init__(self, index: VectorIndex, first_row: int) -> None:
        self._index, self._first_row = index, first_row
        self.dim: int = index.dim
        self.placement: Placement = index.placement
        self.parameters: Mapping[str, SearchParam] = {}

    def __len__(self) -> int:
        return len(self._index)

    def search(self, vectors: Vectors, k: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the k best of these rows for each of the (Q, dim) query vectors."""
        rows, scores = self._index.search(vectors, k)
        return Hits(np.where(rows == NO_ROW, NO_ROW, rows + self._first_row), scores)


def open_vector_range(corpus: str, name: str, fingerprint: str, rows: range, *, device: str = "cpu") -> VectorIndex:
    """Open some rows of an index that is searched by vectors: mapped for exact search on a CPU, otherwise copied into memory.

    Raises:
        InputError: it cannot be searched in parts, or has no room on the device.
        ArtifactMissing, ArtifactMismatch, ArtifactDamaged, MissingExtraError: see ``open_vector_index``.
    """
    ref = index_ref(corpus, name)
    manifest = ref.manifest(fingerprint)
    if not ref.name.kind:
        return VectorRange(open_exact(ref.path, manifest, device=device, rows=rows), rows.start)
    vectors = _corpus_vectors(ref.vectors, fingerprint)
    options = OpenOptions(name=str(ref.name), encoder=ref.name.encoder, device=device, vectors=vectors, rows=rows)
    index: VectorIndex = ref.kind.open(ref.path, manifest, options)
    return index


def open_range_rescorer(corpus: str, name: str, fingerprint: str) -> Rescorer | None:
    """Map the vectors that an index was made of; None if they are not there. Of the files only the rows that are asked for are read."""
    vectors = _corpus_vectors(index_ref(corpus, name).vectors, fingerprint)
    return None if vectors is None else Rescorer(vectors.array, vectors.missing)


def _corpus_vectors(ref: IndexRef, fingerprint: str) -> CorpusVectors | None:
    return corpus_vectors(ref.path, ref.manifest(fingerprint)) if ref.is_built else None

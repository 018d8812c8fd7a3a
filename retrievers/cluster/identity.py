"""Identity of an index on disk, by which all machines of a cluster know that they serve the same data."""

from __future__ import annotations

from typing import NamedTuple

from wikidx.base.errors import ArtifactMismatch
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.corpus_vectors import vectors_identity


class IndexIdentity(NamedTuple):
    """Identity of an index. Two different indexes built at the same path have different identities.

    Attributes:
        fingerprint: fingerprint of the corpus.
        files: sha256 of the checksums of the index's files.
        vectors: sha256 of the checksums of the encoder's vectors, which rescoring reads; empty if they do not exist.
        n_rows: number of rows of the corpus.
    """

    fingerprint: str
    files: str
    vectors: str
    n_rows: int


def index_identity(corpus: str, name: str) -> IndexIdentity:
    """Return the identity of the index on disk.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactCorrupt: see ``IndexRef.manifest``.
    """
    ref = index_ref(corpus, name)
    manifest = ref.manifest(None)
    vectors = vectors_identity(ref.vectors.manifest(manifest.fingerprint)) if ref.vectors.is_built else ""
    return IndexIdentity(manifest.fingerprint, vectors_identity(manifest), vectors, manifest.count("rows"))


def check_identity(corpus: str, name: str, expected: IndexIdentity) -> None:
    """Raise ``ArtifactMismatch`` unless the index on disk is the expected one."""
    path, actual = index_ref(corpus, name).path, index_identity(corpus, name)
    for field, value, expected_value in zip(("passages", "files", "vectors", "rows"), actual, expected, strict=True):
        if value != expected_value:
            raise ArtifactMismatch(
                f"{path} is not the served index: its {field} are {value!s:.12}, not {expected_value!s:.12}: "
                "let all machines see the same data home, and start again"
            )

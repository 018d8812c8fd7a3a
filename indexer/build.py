"""Builds and opens indexes: the only writer and reader of index directories.

An index is named ``bm25``, or after an encoder: then it is exact search over that encoder's vectors, which are kept as
``<corpus>/vectors/<encoder>``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corpora.artifacts import Manifest, Parameters, Recipe, check_fingerprint, is_finished, read_manifest
from corpora.build import open_store, store_manifest
from corpora.errors import ArtifactMismatch, ArtifactMissing
from corpora.home import corpus_path
from corpora.progress import Progress, silent
from corpora.registry import load, near_names
from corpora.staging import Outcome, Work, build_artifact, staged_recipe, staging_path
from corpora.store import PassageStore

from . import ENCODERS, INDEXES
from .base import IndexKind, LexicalIndex
from .devices import EmbedOptions, resources
from .embed import EmbedProgress, embed, encoder_spec
from .encoders.spec import EncoderSpec, other_weights, weights_of
from .indexes.exact import ExactIndex
from .pipeline import Job
from .vectors import FORMAT_VERSION, KIND, SHARD_ROWS, Shards, open_shards

AnyIndex = LexicalIndex | ExactIndex


def index_path(corpus: str, name: str) -> Path:
    """Return where the index ``name`` of a corpus is, built or not; two names of one encoder have the same vectors.

    Raises:
        UnknownNameError: no index or encoder has this name.
    """
    if name in ENCODERS:
        return corpus_path(corpus) / "vectors" / encoder_spec(name).name
    if name not in INDEXES:
        raise near_names("index", name, [*INDEXES, *ENCODERS])
    return corpus_path(corpus) / "indexes" / name


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
        name: "bm25", or an encoder.
        store: the corpus's store.
        options: how an encoder embeds; by default on the CPU.
        force: replace what is there.
        progress: called with (rows done, rows).

    Raises:
        ArtifactMismatch: another index is there.
        UnknownNameError, MissingExtraError, StorageError, LockedError: see there.
    """
    if name in ENCODERS:
        options = options or EmbedOptions(device="cpu")
        return build_vectors(corpus, encoder_spec(name), store, options, force=force, progress=EmbedProgress(progress))
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
        ArtifactMismatch, ArtifactDamaged: it belongs to another store or version of idx, or is damaged.
    """
    path = index_path(corpus, name)
    rebuild = f"idx build {corpus} {'--encoder ' if name in ENCODERS else '--'}{name}"
    if name in ENCODERS:
        kind, version = KIND, FORMAT_VERSION
    else:
        found: IndexKind[LexicalIndex] = load("index", name, INDEXES)
        kind, version = found.name, found.format_version
    manifest = read_manifest(path, kind, version, rebuild)
    if fingerprint is not None:
        check_fingerprint(path, manifest, fingerprint, rebuild)
    return manifest


def open_index(corpus: str, name: str, store: PassageStore) -> AnyIndex:
    """Open a built index; raises as ``index_manifest`` does."""
    manifest = index_manifest(corpus, name, store.fingerprint)
    path = index_path(corpus, name)
    if name in ENCODERS:
        return open_shards(path, manifest)
    kind: IndexKind[LexicalIndex] = load("index", name, INDEXES)
    return kind.open(path, manifest)


def refuse_other_weights(corpus: str, spec: EncoderSpec) -> None:
    """Raise ``ArtifactMismatch`` if a corpus was embedded with other weights, or another tokenizer, than questions would be."""
    differing = other_weights(spec, index_manifest(corpus, spec.name, None).recipe.inputs)
    if differing:
        raise ArtifactMismatch(
            f"the vectors of '{spec.name}' over '{corpus}' were made with another checkpoint than the one in {spec.folder('query')} "
            f"({', '.join(differing)}): put that one back, or run 'idx build {corpus} --encoder {spec.name} --force'"
        )


def built_indexes(corpus: str) -> list[str]:
    """Return the names of the indexes that a corpus has, usable or not."""
    names = dict.fromkeys([*INDEXES, *(encoder_spec(name).name for name in ENCODERS)])
    return [name for name in names if is_finished(index_path(corpus, name))]

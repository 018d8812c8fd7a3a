"""Builds and opens indexes: the only writer and reader of index directories.

An index is named ``bm25`` or ``lucene``; by an encoder: then it is exact search over that encoder's vectors, stored as
``<corpus>/vectors/<encoder>``; or ``<encoder>-<kind>``: built from these vectors, in ``<corpus>/indexes/<encoder>-<kind>``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from wikidx.corpora.artifacts.building import Outcome, Work
from wikidx.corpora.artifacts.manifest import Manifest, Parameters, Recipe
from wikidx.corpora.build import open_store
from wikidx.corpora.errors import ArtifactMismatch
from wikidx.corpora.progress import Progress, silent
from wikidx.corpora.store import PassageStore

from .base import LexicalIndex, VectorIndex
from .catalog import PACKAGES, IndexIdentity, IndexRef, index_ref, kept_index, refuse_other_pieces
from .embedding.embed import EmbedProgress, embed, resources
from .embedding.options import EmbedOptions
from .embedding.pipeline import Job
from .encoders.spec import EncoderSpec, other_weights, weights_of
from .indexes.exact.index import open_exact
from .indexes.kinds import IndexBuild, OpenOptions, Size
from .naming import IndexName, encoder_spec, parse_index_name
from .page_checks import build_checked
from .vectors.corpus_vectors import CorpusVectors, corpus_vectors
from .vectors.file import FORMAT_VERSION, KIND, RANGE_ROWS, VectorFile

AnyIndex = LexicalIndex | VectorIndex


def build_index(corpus: str, name: str, store: PassageStore, *, force: bool = False, progress: Progress = silent) -> Manifest:
    """Build an index of a corpus, unless the same one exists already; an interrupted build resumes.

    Args:
        corpus: the corpus's name.
        name: "bm25", an encoder (embedding on the CPU), or an encoder and a kind of index over its vectors.
        store: the corpus's store.
        force: replace what is there.
        progress: called with (rows done, rows).

    Raises:
        ArtifactMismatch: another index is there.
        ArtifactMissing: the vectors to build it from are missing.
        UnknownNameError, MissingExtraError, StorageError, LockedError: see there.
    """
    ref = index_ref(corpus, name)
    if not ref.name.kind:
        return build_vectors(corpus, encoder_spec(name), store, EmbedOptions(device="cpu"), force=force, progress=EmbedProgress(progress))
    recipe, source = _recipe(ref, store)

    def write(staging: Path) -> Outcome:
        counts = ref.kind.write(IndexBuild(source, recipe.parameters, staging, progress))
        if isinstance(source, CorpusVectors):
            if _corpus_vectors(ref.vectors, store.fingerprint).identity != source.identity:
                raise ArtifactMismatch(f"the vectors of '{ref.name.encoder}' have been replaced meanwhile: run the same command again")
        return Outcome(store.fingerprint, counts)

    work = Work(
        recipe=recipe,
        sources={"passages": corpus} | ({"vectors": str(ref.vectors.path)} if ref.name.encoder else {}),
        existing=lambda: kept_index(ref, store, recipe.parameters, force=force),
        write=write,
        packages=PACKAGES,
    )
    return build_checked(ref.path, work)


def _recipe(ref: IndexRef, store: PassageStore) -> tuple[Recipe, PassageStore | CorpusVectors]:
    """Return the recipe of an index and its inputs; raises ``ArtifactMissing`` if the vectors to build it from are missing."""
    inputs = {"passages": store.fingerprint}
    if not ref.name.encoder:
        parameters = ref.kind.parameters(Size(len(store)))
        return Recipe(kind=ref.kind.name, format_version=ref.kind.format_version, parameters=parameters, inputs=inputs), store
    vectors = _corpus_vectors(ref.vectors, store.fingerprint)
    parameters = {"encoder": ref.name.encoder, **ref.kind.parameters(Size(len(vectors), vectors.dim))}
    inputs["vectors"] = vectors.identity
    return Recipe(kind=ref.kind.name, format_version=ref.kind.format_version, parameters=parameters, inputs=inputs), vectors


def build_vectors(
    corpus: str,
    spec: EncoderSpec,
    store: PassageStore,
    options: EmbedOptions,
    *,
    force: bool = False,
    progress: EmbedProgress = EmbedProgress(),  # noqa: B008 - it cannot be changed
) -> Manifest:
    """Embed a corpus, unless the encoder has its vectors already, embedded or imported; an interrupted build resumes.

    Finished vectors are kept regardless of device and batch size; with the same device and batch size they are bit-identical.

    Args:
        corpus: the corpus's name.
        spec: the encoder.
        store: the corpus's store.
        options: see ``EmbedOptions``.
        force: replace what is there.
        progress: see ``EmbedProgress``.

    Raises:
        ArtifactMismatch: the encoder has vectors of another type than requested, or an interrupted build with other options, or another
            checkpoint, has left vectors.
        IdxError, InputError, MissingExtraError, StorageError, LockedError: see ``embed.embed``; the finished vectors stay.
    """
    found = resources(options, spec)
    stored, computed = found.precision.stored, found.precision.computed
    parameters: Parameters = {"encoder": spec.name, "origin": "encoded", "dtype": stored, "computed": computed}
    asked = {None: (), "bfloat16": ("dtype", "computed")}.get(options.dtype, ("dtype",))
    wanted = {name: parameters[name] for name in ("encoder", *asked)}
    ref = IndexRef(corpus, IndexName(spec.name, ""))

    existing = partial(kept_index, ref, store, wanted, force=force)

    def write(staging: Path) -> Outcome:
        vectors = VectorFile(staging, len(store), stored, RANGE_ROWS)
        embed(Job(spec, partial(_same_store, corpus, store.fingerprint), vectors.write, found), vectors, progress)
        return Outcome(store.fingerprint, {"rows": len(store), "dim": vectors.dim()})

    kept = existing()
    if kept is not None:  # then its checkpoint is not looked for
        return kept
    inputs = {"passages": store.fingerprint, **weights_of(spec)}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs=inputs)
    refuse_other_pieces(ref, recipe, force=force)
    sources = {"passages": corpus, "checkpoint": str(spec.folder("passage"))}
    work = Work(recipe=recipe, sources=sources, existing=existing, write=write, packages=PACKAGES, keeps_pieces=True)
    return build_checked(ref.path, work)


def _same_store(corpus: str, fingerprint: str) -> PassageStore:
    """Reopen the store of a corpus; raises ``ArtifactMismatch`` if it has been replaced."""
    store = open_store(corpus)
    if store.fingerprint != fingerprint:
        raise ArtifactMismatch(f"the passages of '{corpus}' have been replaced meanwhile: run the same command again")
    return store


def open_index(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> AnyIndex:
    """Open a built index; raises as ``open_vector_index`` does."""
    if parse_index_name(name).encoder:
        return open_vector_index(corpus, name, store, device=device)
    return open_lexical_index(corpus, name, store)


def open_lexical_index(corpus: str, name: str, store: PassageStore) -> LexicalIndex:
    """Open a built lexical index; raises as ``IndexRef.manifest`` does."""
    ref = index_ref(corpus, name)
    index: LexicalIndex = ref.kind.open(ref.path, ref.manifest(store.fingerprint), OpenOptions(name=name))
    return index


def open_vector_index(
    corpus: str, name: str, store: PassageStore | IndexIdentity, *, device: str = "cpu", rows: range | None = None
) -> VectorIndex:
    """Open a built vector index: exact search for an encoder's name, or an index built from its vectors.

    Args:
        corpus: the corpus's name.
        name: the index's.
        store: the corpus's store, or the facts about it that the index needs.
        device: device of the searches; see ``devices.check_devices``.
        rows: search only these, copied into memory except for exact search on a CPU; numbers and scores are the whole index's. None: all.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactDamaged: see ``IndexRef.manifest``.
        InputError: the device cannot be used, the index does not fit there, or it cannot be sharded.
        MissingExtraError: a package that it needs is not installed.
    """
    ref = index_ref(corpus, name)
    manifest = ref.manifest(store.fingerprint)
    if not ref.name.kind:
        return open_exact(ref.path, manifest, device=device, rows=rows)
    vectors = open_vectors(corpus, name, store)
    options = OpenOptions(name=str(ref.name), encoder=ref.name.encoder, device=device, vectors=vectors, rows=rows)
    index: VectorIndex = ref.kind.open(ref.path, manifest, options)
    return index


def open_vectors(corpus: str, name: str, store: PassageStore | IndexIdentity) -> CorpusVectors | None:
    """Map the vectors that an index searches or was built from; None if they no longer exist.

    Raises:
        ArtifactMismatch, ArtifactDamaged: see ``IndexRef.manifest``.
    """
    ref = index_ref(corpus, name).vectors
    return _corpus_vectors(ref, store.fingerprint) if ref.is_built else None


def _corpus_vectors(ref: IndexRef, fingerprint: str) -> CorpusVectors:
    return corpus_vectors(ref.path, ref.manifest(fingerprint))


def refuse_other_weights(corpus: str, spec: EncoderSpec) -> None:
    """Raise ``ArtifactMismatch`` if a corpus was embedded with another checkpoint or tokenizer than the local one for queries.

    Nothing is checked if only an index built from the vectors is left.
    """
    ref = IndexRef(corpus, IndexName(spec.name, ""))
    if not ref.is_built:
        return
    differing = other_weights(spec, ref.manifest(None).recipe.inputs)
    if differing:
        raise ArtifactMismatch(
            f"the vectors of '{spec.name}' over '{corpus}' were made with another checkpoint than the one in {spec.folder('query')} "
            f"({', '.join(differing)}): put that one back, or run 'idx build {corpus} --encoder {spec.name} --force'"
        )

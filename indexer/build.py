"""Build and open the indexes of a corpus.

``bm25``, ``bm25-1.2-0.75``, ``bm25-german`` and ``lucene`` are lexical indexes. An encoder means exact search over its vectors, which
are in ``<corpus>/vectors/<encoder>``. ``<encoder>-<kind>`` is an index built from these vectors, in ``<corpus>/indexes/<encoder>-<kind>``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, prepared_staging
from wikidx.base.artifacts.checked_files import build_checked
from wikidx.base.artifacts.manifest import Manifest, Parameters, Recipe
from wikidx.base.errors import ArtifactMismatch
from wikidx.base.plugins import check_same
from wikidx.base.progress import Progress, silent
from wikidx.corpora.build import open_store, store_manifest
from wikidx.corpora.store import Follower, PassageStore

from .base import LexicalIndex, VectorIndex
from .catalog import PACKAGES, IndexRef, check_staged_recipe, index_ref, reusable_index
from .embedding.embed import EmbedProgress, embed, resolve_resources
from .embedding.options import EmbedOptions
from .embedding.pipeline import Job
from .encoders.plugged import keep_name
from .encoders.spec import EncoderSpec, changed_settings, changed_weights, weight_checksums
from .indexes.exact.index import open_exact
from .indexes.kinds import IndexBuild, OpenOptions, Size
from .naming import IndexName, encoder_spec, parse_index_name
from .vectors.corpus_vectors import CorpusVectors, open_corpus_vectors
from .vectors.file import FORMAT_VERSION, GPU_RANGE_ROWS, KIND, RANGE_ROWS, VectorFile

AnyIndex = LexicalIndex | VectorIndex


class Fingerprinted(Protocol):
    """The corpus's store, or what else has the fingerprint of its passages."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the passages."""
        ...


def build_index(corpus: str, name: str, store: PassageStore, *, force: bool = False, progress: Progress = silent) -> Manifest:
    """Build an index of a corpus unless it already exists; an interrupted build resumes.

    Args:
        corpus: the corpus's name.
        name: "bm25", "bm25-1.2-0.75" (k1 and b), "bm25-german" (an analyzer), ``<encoder>-<kind>``, or an encoder, whose vectors
            are computed on the CPU.
        store: the corpus's store.
        force: replace an existing index.
        progress: called with (rows done, total rows).

    Raises:
        ArtifactMismatch: the existing index has other parameters, or was built from other passages or vectors.
        ArtifactMissing: the vectors to index are missing.
        UnknownNameError, MissingExtraError, StorageError, LockedError: see ``index_ref``, ``IndexKind.write`` and ``build_artifact``.
    """
    ref = index_ref(corpus, name)
    if ref.name.source == "encoder":
        return build_vectors(corpus, encoder_spec(name), store, EmbedOptions(device="cpu"), force=force, progress=EmbedProgress(progress))
    recipe, source = _recipe(ref, store)

    def write(staging: Path) -> BuildResult:
        return BuildResult(store.fingerprint, ref.kind.write(IndexBuild(source, recipe.parameters, staging, progress)))

    work = ArtifactSpec(
        recipe=recipe,
        sources={"passages": corpus} | ({"vectors": str(ref.vectors.path)} if ref.name.source == "vectors" else {}),
        find_existing=lambda: reusable_index(ref, store, recipe.parameters, force=force),
        write=write,
        packages=PACKAGES,
        keep_staging=bool(ref.name.analyzer),  # whose code the user corrects
        prepared=_followed_recipe(ref, store_manifest(corpus).recipe, store.left_out) if ref.kind.follow else None,
    )
    return build_checked(ref.path, work)


def _recipe(ref: IndexRef, store: PassageStore) -> tuple[Recipe, PassageStore | CorpusVectors]:
    """Return the recipe of an index, and its source (store or vectors); raises ``ArtifactMissing`` if the vectors are missing."""
    inputs = {"passages": store.fingerprint}
    if ref.name.source == "passages":
        parameters = {**ref.kind.parameters(Size(len(store))), **ref.analysis, **ref.numbers, **ref.code}
        return Recipe(kind=ref.kind.name, format_version=ref.kind.format_version, parameters=parameters, inputs=inputs), store
    vectors = _corpus_vectors(ref.vectors, store.fingerprint)
    parameters = {"encoder": ref.name.encoder, **ref.kind.parameters(Size(len(vectors), vectors.dim)), **ref.code}
    inputs["vectors"] = vectors.identity
    return Recipe(kind=ref.kind.name, format_version=ref.kind.format_version, parameters=parameters, inputs=inputs), vectors


@contextmanager
def follow(ref: IndexRef, store_recipe: Recipe, left_out: str) -> Iterator[Follower]:
    """Open the follower of an index whose kind has one, which prepares its build while a store is written; see ``corpora.build.Follow``."""
    assert ref.kind.follow is not None
    with (
        prepared_staging(ref.path, _followed_recipe(ref, store_recipe, left_out)) as staging,
        closing(ref.kind.follow(staging, ref.analysis)) as follower,
    ):
        yield follower


def _followed_recipe(ref: IndexRef, store_recipe: Recipe, left_out: str) -> Recipe:
    """Return the recipe of the files that a follower prepares: the fingerprint of the passages is not known yet."""
    inputs = {"recipe of the passages": hashlib.sha256(store_recipe.to_json().encode()).hexdigest(), "left out": left_out}
    parameters = {**ref.kind.parameters(Size(0)), **ref.analysis}
    return Recipe(kind=ref.kind.name, format_version=ref.kind.format_version, parameters=parameters, inputs=inputs)


def build_vectors(
    corpus: str,
    spec: EncoderSpec,
    store: PassageStore,
    options: EmbedOptions,
    *,
    force: bool = False,
    progress: EmbedProgress = EmbedProgress(),  # noqa: B008 - immutable
) -> Manifest:
    """Embed a corpus unless it already has vectors of the encoder, embedded or imported; an interrupted build resumes.

    A resumed build keeps the finished vectors even if the device or batch size has changed. With the same device and batch size, its
    result is bit-identical to that of an uninterrupted build.

    Args:
        corpus: the corpus's name.
        spec: the encoder.
        store: the corpus's store.
        options: see ``EmbedOptions``.
        force: replace existing vectors.
        progress: see ``EmbedProgress``.

    Raises:
        ArtifactMismatch: the existing vectors have another dtype than requested, or an interrupted build has left vectors of another
            precision or checkpoint.
        IdxError, InputError, MissingExtraError, StorageError, LockedError: see ``embed.embed``; the finished vectors are kept.
    """
    resources = resolve_resources(options, spec)
    stored, computed = resources.precision.stored, resources.precision.computed
    parameters: Parameters = {"encoder": spec.name, "origin": "encoded", "dtype": stored, "computed": computed, **spec.recipe()}
    chosen = {None: (), "bfloat16": ("dtype", "computed")}.get(options.dtype, ("dtype",))
    requested = {name: parameters[name] for name in ("encoder", *chosen)}
    ref = IndexRef(corpus, IndexName(spec.name, ""))
    find_existing = partial(reusable_index, ref, store, requested, force=force)

    def write(staging: Path) -> BuildResult:
        vectors = VectorFile(staging, len(store), stored, RANGE_ROWS if resources.devices[0] == "cpu" else GPU_RANGE_ROWS, spec.normalize)
        embed(Job(spec, _Reopening(corpus, store), vectors.write, resources), vectors, progress)
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": vectors.dim()})

    if (manifest := find_existing()) is not None:  # existing vectors need no checkpoint
        _check_settings(corpus, spec, manifest)
        return manifest
    inputs = {"passages": store.fingerprint, **weight_checksums(spec)}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs=inputs)
    check_staged_recipe(ref, recipe, force=force)
    keep_name(spec)
    sources = {"passages": corpus, "checkpoint": spec.source("passage")}
    work = ArtifactSpec(recipe=recipe, sources=sources, find_existing=find_existing, write=write, packages=PACKAGES, keep_staging=True)
    return build_checked(ref.path, work)


class _Reopening:
    """A function that returns a store, and in another process opens it again; it then raises ``ArtifactMismatch`` if it was replaced."""

    def __init__(self, corpus: str, store: PassageStore) -> None:
        self._corpus, self._fingerprint = corpus, store.fingerprint
        self._store: PassageStore | None = store

    def __getstate__(self) -> dict[str, str | None]:
        return {"_corpus": self._corpus, "_fingerprint": self._fingerprint, "_store": None}

    def __call__(self) -> PassageStore:
        store = open_store(self._corpus) if self._store is None else self._store
        if store.fingerprint != self._fingerprint:
            raise ArtifactMismatch(f"the passages of '{self._corpus}' have been replaced meanwhile: run the same command again")
        return store


def open_index(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> AnyIndex:
    """Open a built index; raises as ``open_vector_index`` does."""
    if parse_index_name(name).source == "passages":
        return open_lexical_index(corpus, name, store)
    return open_vector_index(corpus, name, store, device=device)


def open_lexical_index(corpus: str, name: str, store: PassageStore) -> LexicalIndex:
    """Open a built lexical index; raises as ``IndexRef.manifest`` does."""
    ref = index_ref(corpus, name)
    index: LexicalIndex = ref.kind.open(ref.path, ref.manifest(store.fingerprint), OpenOptions(name=name))
    return index


def open_vector_index(
    corpus: str,
    name: str,
    store: Fingerprinted,
    *,
    device: str = "cpu",
    rows: range | None = None,
) -> VectorIndex:
    """Open a built vector index.

    Args:
        corpus: the corpus's name.
        name: the index's name: an encoder for exact search over its vectors, or ``<encoder>-<kind>`` for an index built from them.
        store: the corpus's store, or another object with the fingerprint of its passages.
        device: search device; see ``devices.check_devices``.
        rows: search only these rows, with the row numbers and scores of the whole index; None: search all rows. The rows are copied into
            memory, except for exact search on a CPU.

    Raises:
        ArtifactMissing, ArtifactMismatch, ArtifactCorrupt: see ``IndexRef.manifest``.
        InputError: the device cannot be used, or the index does not fit on the device or cannot be sharded.
        MissingExtraError: a package that the index needs is not installed.
    """
    ref = index_ref(corpus, name)
    manifest = ref.manifest(store.fingerprint)
    if ref.name.source == "encoder":
        return open_exact(ref.path, manifest, device=device, rows=rows)
    vectors = open_vectors(corpus, name, store)
    options = OpenOptions(name=str(ref.name), encoder=ref.name.encoder, device=device, vectors=vectors, rows=rows)
    index: VectorIndex = ref.kind.open(ref.path, manifest, options)
    return index


def open_vectors(corpus: str, name: str, store: Fingerprinted) -> CorpusVectors | None:
    """Map the vectors of an index's encoder; return None if they do not exist.

    Raises:
        ArtifactMismatch, ArtifactCorrupt: see ``IndexRef.manifest``.
    """
    ref = index_ref(corpus, name).vectors
    return _corpus_vectors(ref, store.fingerprint) if ref.is_built else None


def _corpus_vectors(ref: IndexRef, fingerprint: str) -> CorpusVectors:
    return open_corpus_vectors(ref.path, ref.manifest(fingerprint))


def check_query_weights(corpus: str, spec: EncoderSpec) -> None:
    """Raise ``ArtifactMismatch`` if the query encoder's settings, checkpoint or tokenizer have changed since a corpus was embedded.

    Without the vectors the check is skipped, even if indexes built from them exist.
    """
    ref = IndexRef(corpus, IndexName(spec.name, ""))
    if not ref.is_built:
        return
    _check_settings(corpus, spec, ref.manifest(None))
    differing = changed_weights(spec, ref.manifest(None).recipe.inputs)
    if differing:
        raise ArtifactMismatch(
            f"the vectors of '{spec.name}' over '{corpus}' were made with another checkpoint than {spec.source('query')} "
            f"({', '.join(differing)}): restore that checkpoint, or run 'idx build {corpus} --encoder {spec.name} --force'"
        )


def _check_settings(corpus: str, spec: EncoderSpec, manifest: Manifest) -> None:
    """Raise ``ArtifactMismatch`` if vectors were made by other settings than the encoder's."""
    recorded = manifest.recipe.parameters.get("code_sha256")
    if spec.code_sha256 is not None and recorded is not None:
        check_same("encoder", spec.name, str(recorded), index_ref(corpus, spec.name).path)
    if differing := changed_settings(spec, manifest.recipe.parameters):
        raise ArtifactMismatch(
            f"the vectors of '{spec.name}' over '{corpus}' were made with {'; '.join(differing)}: name the encoder again as it was, or run "
            f"'idx build {corpus} --encoder {spec.name} --force'"
        )

"""Builds of ``idx build``: their estimates and their steps, from a corpus to its indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from wikidx.corpora.artifacts.building import staged_bytes
from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.build import build_store, kept_store, open_store, store_path
from wikidx.corpora.errors import ArtifactMismatch, InputError, StorageError
from wikidx.corpora.forecast import Forecast, forecast_corpus, forecast_store
from wikidx.corpora.known import sample
from wikidx.corpora.progress import Step, silent_steps
from wikidx.corpora.resolving import Resolved, name_source
from wikidx.corpora.store import PassageStore

from . import ENCODERS
from .build import build_index, build_vectors
from .catalog import index_ref
from .embedding.embed import EmbedProgress
from .embedding.options import EmbedOptions
from .encoders.spec import EncoderSpec
from .estimate import (
    SAMPLE_PASSAGES,
    Need,
    disk_shortage,
    import_need,
    index_need,
    store_need,
    vectors_need,
)
from .naming import encoder_spec, parse_index_name
from .published.addresses import PUBLISHED, PublishedVectors, fetch
from .published.importing import ImportOptions, import_vectors, verify_vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Origin of an encoder's vectors.

    Attributes:
        origin: "published" or "encode"; None: published ones, if there are any of the whole corpus.
        allow_missing: accept published vectors that lack some passages.
        verify: number of passages to encode again and compare with published vectors.
    """

    origin: str | None = None
    allow_missing: bool = False
    verify: int = 0

    def __post_init__(self) -> None:
        if self.origin not in (None, "published", "encode"):
            raise InputError(f"--vectors {self.origin}: say published or encode")
        if self.origin == "encode" and (self.allow_missing or self.verify):
            raise InputError("--allow-missing and --verify are for published vectors, not for --vectors encode")


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """A corpus and the indexes to build over it.

    Attributes:
        source: the corpus, and options of its store; see ``corpora.resolving.resolve``.
        indexes: names of indexes; those built from an encoder's vectors include it.
        embedding: options of embedding.
        vectors: origin of the vectors.
    """

    source: Resolved
    indexes: tuple[str, ...] = ("bm25",)
    embedding: EmbedOptions = EmbedOptions()
    vectors: VectorOptions = VectorOptions()

    def __post_init__(self) -> None:
        object.__setattr__(self, "indexes", _with_vectors(self.indexes))

    @property
    def name(self) -> str:
        """Name of the corpus on disk."""
        return self.source.name

    def published(self, encoder: str) -> PublishedVectors | None:
        """Return the published vectors to import for an encoder; None if the passages must be embedded, or its vectors exist.

        Raises:
            ArtifactMismatch: its vectors exist and are not the requested ones.
            InputError: none are published, or they lack passages and that is not allowed.
        """
        if self.is_kept(encoder):
            origin = index_ref(self.name, encoder).manifest(None).recipe.parameters.get("origin", "encoded")
            if origin != {"published": "imported", "encode": "encoded"}.get(self.vectors.origin or "", origin):
                raise ArtifactMismatch(f"the vectors of '{encoder}' over '{self.name}' are there, {origin}: --force replaces them")
            return None
        corpus, is_subset = self.source.corpus.name, self.source.options.limit is not None
        if self.vectors.origin == "encode" or (self.vectors.origin is None and is_subset):
            return None
        published = PUBLISHED.get((corpus, encoder))
        if published is None and self.vectors.origin == "published":
            known = ", ".join(name for of, name in PUBLISHED if of == corpus) or "no encoder"
            raise InputError(f"of '{corpus}' the vectors of {known} are published, not of '{encoder}': say --vectors encode")
        if published is not None and published.n_missing and not (is_subset or self.vectors.allow_missing):
            raise InputError(
                f"the published vectors of '{encoder}' lack {published.n_missing} passages of '{corpus}', which no search would "
                "find: say --allow-missing to take them all the same, or --vectors encode"
            )
        return published

    def import_options(self, encoder: str) -> ImportOptions:
        """Return the options of importing published vectors; raises ``InputError`` for a type that they cannot be stored in."""
        return ImportOptions(
            allow_missing=self.vectors.allow_missing,
            verify=self.vectors.verify,
            dtype=self.embedding.dtype,
            device=self.embedding.device,
            force=self.replaces(encoder),
        )

    def replaces(self, index: str) -> bool:
        """Return whether an existing index is to be replaced; vectors are not if an index built from them is named."""
        made = (name for name in map(parse_index_name, self.indexes) if name.encoder and name.kind)
        return self.source.options.replace and all(name.encoder != index for name in made)

    def is_kept(self, index: str) -> bool:
        """Return whether an index exists and is not to be replaced."""
        return index_ref(self.name, index).is_built and not self.replaces(index)

    def kept_store(self) -> Manifest | None:
        """Return the manifest of an existing store to keep, None if it must be built; raises as ``kept_store`` does."""
        return kept_store(self.source.corpus, self.source.options, holds_source=not self.source.keeps_store)


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Estimate of a build.

    Attributes:
        forecast: of the corpus.
        download_bytes: still to be downloaded.
        needs: of each unfinished step.
        shortage: missing disk space; None if all fits.
    """

    forecast: Forecast
    download_bytes: int
    needs: list[Need]
    shortage: str | None


def _with_vectors(names: Sequence[str]) -> tuple[str, ...]:
    """Return indexes by canonical name, each once, with an encoder's vectors before the indexes built from them."""
    indexes = list[str]()
    for name in names:
        found = parse_index_name(name)
        indexes += [found.encoder, str(found)]
    return tuple(dict.fromkeys(filter(None, indexes)))


def plan(spec: BuildSpec) -> BuildPlan:
    """Estimate each unfinished step of a build.

    Raises:
        InputError, MissingExtraError: a named input is missing.
    """
    has_store = spec.kept_store() is not None
    source = spec.source.corpus.path
    if not has_store and spec.source.keeps_store and source is not None and not source.is_file():
        raise InputError(f"'{spec.name}' was built from {source}, which is not there any more: {name_source(spec.source.corpus.name)}")
    forecast = forecast_store(open_store(spec.name)) if has_store else forecast_corpus(spec.source.corpus, spec.source.options)
    needs = list(_needs(spec, forecast, has_store=has_store))
    published = {encoder: spec.published(encoder) for encoder in spec.indexes if encoder in ENCODERS}
    missing_bytes = (found.missing_bytes(spec.source.corpus.name, encoder) for encoder, found in published.items() if found is not None)
    download_bytes = forecast.download_bytes + sum(missing_bytes)
    n_staged = sum(map(staged_bytes, (store_path(spec.name), *(index_ref(spec.name, index).path for index in spec.indexes))))
    return BuildPlan(forecast, download_bytes, needs, disk_shortage(needs, download_bytes - n_staged))


def build(spec: BuildSpec, step: Step = silent_steps) -> dict[str, Manifest]:
    """Plan a build and carry it out; see ``plan`` and ``carry_out``.

    Raises:
        StorageError: the disk is too small.
    """
    shortage = plan(spec).shortage
    if shortage:
        raise StorageError(shortage)
    return carry_out(spec, step)


def carry_out(spec: BuildSpec, step: Step = silent_steps) -> dict[str, Manifest]:
    """Build what is missing; return the manifests of the passages and of each index.

    Raises:
        IdxError: an error stopped it; the next call resumes.
    """
    manifests = {"passages": _store(spec, step)}
    store = open_store(spec.name)
    for index in spec.indexes:
        manifests[index] = (
            _vectors(spec, index, store, step)
            if index in ENCODERS
            else build_index(spec.name, index, store, force=spec.replaces(index), progress=step(index, "passages"))
        )
    return manifests


def _store(spec: BuildSpec, step: Step) -> Manifest:
    kept = spec.kept_store() if spec.source.keeps_store else None
    return kept or build_store(
        spec.source.corpus, spec.source.options, fetching=step("fetching", "B"), storing=step("passages", "passages")
    )


def _vectors(spec: BuildSpec, name: str, store: PassageStore, step: Step) -> Manifest:
    """Embed the passages, or fetch and import published vectors."""
    encoder, published = encoder_spec(name), spec.published(name)
    if published is not None:
        source = fetch(spec.source.corpus.name, name, published, step(f"fetching {name}", "B"))
        return import_vectors(spec.name, encoder, store, source, spec.import_options(name), step(name, "passages"))
    progress = EmbedProgress(step(name, "passages"), step(f"{name}, tokens", "tokens"), lambda node: step(f"{name} on {node}", "passages"))
    manifest = build_vectors(spec.name, encoder, store, spec.embedding, force=spec.replaces(name), progress=progress)
    if spec.vectors.verify:
        verify_vectors(spec.name, encoder, store, spec.vectors.verify, spec.embedding.device)
    return manifest


def _needs(spec: BuildSpec, forecast: Forecast, *, has_store: bool) -> Iterator[Need]:
    """Yield the estimate of each unfinished step."""
    if not has_store:
        yield store_need(forecast.n_passages, forecast.passage_bytes)
    for index in spec.indexes:
        if spec.is_kept(index):
            continue
        ref = index_ref(spec.name, index)
        if ref.name.kind:
            yield index_need(ref, forecast.n_passages, forecast.passage_bytes)
        else:
            yield _vectors_need(spec, encoder_spec(index), forecast)


def _vectors_need(spec: BuildSpec, encoder: EncoderSpec, forecast: Forecast) -> Need:
    published = spec.published(encoder.name)
    if published is not None:
        return import_need(forecast.n_passages, encoder, published, spec.import_options(encoder.name))
    # Before any of the corpus is available, the encoder is timed on passages of the sample corpus.
    passages = forecast.sample or list(islice(sample.passages(), SAMPLE_PASSAGES))
    encoder.folder("passage")  # downloaded before the clock runs
    return vectors_need(forecast.n_passages, forecast.passage_bytes, passages, encoder, spec.embedding)

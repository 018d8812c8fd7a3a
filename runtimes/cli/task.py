"""What ``idx build`` was asked for, what it will need, and the doing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from corpora import sample
from corpora.amount import amount
from corpora.artifacts import Manifest, is_finished
from corpora.build import (
    SKIPPED,
    StoreOptions,
    build_store,
    kept_store,
    open_store,
    skipped_records,
    store_name,
    store_path,
)
from corpora.corpus import Corpus
from corpora.errors import ArtifactMismatch, InputError, StorageError
from corpora.forecast import Forecast, forecast_corpus, forecast_store
from corpora.registry import near_names
from corpora.staging import staged_bytes
from corpora.store import PassageStore
from indexer import ENCODERS, VECTOR_INDEXES
from indexer.build import build_index, build_vectors
from indexer.catalog import index_manifest, index_path
from indexer.devices import EmbedOptions
from indexer.embed import EmbedProgress
from indexer.encoders.spec import EncoderSpec
from indexer.estimate import (
    SAMPLE_PASSAGES,
    Need,
    bm25_need,
    disk_shortage,
    import_need,
    lucene_need,
    store_need,
    vector_index_need,
    vectors_need,
)
from indexer.naming import VectorIndexName, encoder_spec, vector_index_name
from indexer.published import ImportOptions, import_vectors, verify_vectors
from indexer.published_addresses import PUBLISHED, PublishedVectors, fetch

from .resolve import name_source
from .screen import duration, note, steps

_SHOWN_SKIPPED = 3
_STEP_WIDTH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Where an encoder's vectors come from.

    Attributes:
        origin: "published" or "encode"; None: published ones, if there are any of the whole corpus.
        allow_missing: take published vectors that lack some passages.
        verify: how many passages are encoded again and compared with published vectors.
    """

    origin: str | None
    allow_missing: bool
    verify: int

    def __post_init__(self) -> None:
        if self.origin not in (None, "published", "encode"):
            raise InputError(f"--vectors {self.origin}: say published or encode")
        if self.origin == "encode" and (self.allow_missing or self.verify):
            raise InputError("--allow-missing and --verify are for published vectors, not for --vectors encode")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be built.

    Attributes:
        corpus: what the store holds.
        options: of the store.
        indexes: to be built over the store.
        embedding: how encoders embed.
        vectors: where their vectors come from.
        keeps_store: a store built from a user's file was named, not its file: what is there is used as it is.
    """

    corpus: Corpus
    options: StoreOptions
    indexes: tuple[str, ...]
    embedding: EmbedOptions
    vectors: VectorOptions
    keeps_store: bool

    @property
    def name(self) -> str:
        """The corpus's name on disk."""
        return store_name(self.corpus, self.options.limit)

    def published(self, encoder: str) -> PublishedVectors | None:
        """Return which published vectors are to be taken for an encoder; None if the passages are to be embedded, or its vectors are there.

        Raises:
            ArtifactMismatch: its vectors are there and are not what was asked for.
            InputError: none are published, or those that are lack passages and that is not allowed.
        """
        if self.is_kept(encoder):
            origin = index_manifest(self.name, encoder, None).recipe.parameters.get("origin", "encoded")
            if origin != {"published": "imported", "encode": "encoded"}.get(self.vectors.origin or "", origin):
                raise ArtifactMismatch(f"the vectors of '{encoder}' over '{self.name}' are there, {origin}: --force replaces them")
            return None
        is_subset = self.options.limit is not None
        if self.vectors.origin == "encode" or (self.vectors.origin is None and is_subset):
            return None
        published = PUBLISHED.get((self.corpus.name, encoder))
        if published is None and self.vectors.origin == "published":
            known = ", ".join(name for corpus, name in PUBLISHED if corpus == self.corpus.name) or "no encoder"
            raise InputError(f"of '{self.corpus.name}' the vectors of {known} are published, not of '{encoder}': say --vectors encode")
        if published is not None and published.n_missing and not (is_subset or self.vectors.allow_missing):
            raise InputError(
                f"the published vectors of '{encoder}' lack {published.n_missing} passages of '{self.corpus.name}', which no search would "
                "find: say --allow-missing to take them all the same, or --vectors encode"
            )
        return published

    def import_options(self, encoder: str) -> ImportOptions:
        """Return how published vectors are imported; raises ``InputError`` for a type that they are not stored in."""
        return ImportOptions(
            allow_missing=self.vectors.allow_missing,
            verify=self.vectors.verify,
            dtype=self.embedding.dtype,
            device=self.embedding.device,
            force=self.replaces(encoder),
        )

    def replaces(self, index: str) -> bool:
        """Return whether an index that is there is to be replaced; vectors are not where an index made of them is named."""
        made = filter(None, map(vector_index_name, self.indexes))
        return self.options.replace and all(name.encoder != index for name in made)

    def is_kept(self, index: str) -> bool:
        """Return whether an index is there and not to be replaced."""
        return is_finished(index_path(self.name, index)) and not self.replaces(index)

    def kept_store(self) -> Manifest | None:
        """Return the manifest of the store that is there and stays, None if it has to be built; raises as ``kept_store`` does."""
        return kept_store(self.corpus, self.options, holds_source=not self.keeps_store)


def index_names(encoders: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return what is to be built for encoders: the vectors of each, then an index of each kind made of them.

    Raises:
        UnknownNameError: there is no such encoder or kind.
        InputError: kinds are named, and no encoder.
    """
    for kind in kinds:
        if kind not in VECTOR_INDEXES:
            raise near_names("kind of index", kind, VECTOR_INDEXES)
    if kinds and not encoders:
        raise InputError(f"--index {kinds[0]}: say with --encoder over whose vectors")
    names = list[str]()
    for encoder in dict.fromkeys(encoder_spec(name).name for name in encoders):
        names += [encoder, *(str(VectorIndexName(encoder, kind)) for kind in dict.fromkeys(kinds))]
    return names


def plan(task: Task, *, is_dry_run: bool) -> list[Need]:
    """Say what each step of the task needs, and refuse what does not fit on the disk; in a dry run only say so.

    Raises:
        StorageError: the disk is too small.
        InputError, MissingExtraError: something named is not there.
    """
    has_store = task.kept_store() is not None
    source = task.corpus.path
    if not has_store and task.keeps_store and source is not None and not source.is_file():
        raise InputError(f"'{task.name}' was built from {source}, which is not there any more: {name_source(task.corpus.name)}")
    forecast = forecast_store(open_store(task.name)) if has_store else forecast_corpus(task.corpus, task.options)
    needs = list(_needs(task, forecast, has_store=has_store))
    note(f"corpus '{task.name}': {task.corpus.summary}")
    note(f"about {forecast.n_passages:,} passages of {amount(forecast.passage_bytes)}")
    download_bytes = forecast.download_bytes + _published_bytes(task)
    if download_bytes:
        note(f"download {amount(download_bytes)}")
    if needs:
        note(f"{'to build':<{_STEP_WIDTH}}{'disk':>12}{'memory':>12}{'time':>12}   (estimates)")
    for need in needs:
        note(f"{need.step:<{_STEP_WIDTH}}{amount(need.disk_bytes):>12}{amount(need.memory_bytes):>12}{duration(need.time_s):>12}")
    n_staged = sum(map(staged_bytes, (store_path(task.name), *(index_path(task.name, index) for index in task.indexes))))
    shortage = disk_shortage(needs, download_bytes - n_staged)
    if shortage and not is_dry_run:
        raise StorageError(shortage)
    if shortage:
        note(shortage)
    return needs


def _published_bytes(task: Task) -> int:
    """Return about how many bytes of published vectors are still to be downloaded."""
    found = {encoder: task.published(encoder) for encoder in task.indexes if encoder in ENCODERS}
    return sum(published.missing_bytes(task.corpus.name, encoder) for encoder, published in found.items() if published is not None)


def carry_out(task: Task) -> dict[str, Manifest]:
    """Build what is not there yet; return the manifests of all that was asked for.

    Raises:
        IdxError: whatever stopped it; started again, it goes on.
    """
    kept = task.kept_store() if task.keeps_store else None
    with steps() as step:
        fetching, storing = step("fetching", "B"), step("passages", "passages")
        manifests = {"passages": kept or build_store(task.corpus, task.options, fetching=fetching, storing=storing)}
    _report_skipped(task.name, manifests["passages"].count("skipped"))
    store = open_store(task.name)
    for index in task.indexes:
        manifests[index] = _vectors(task, index, store) if index in ENCODERS else _index(task, index, store)
    return manifests


def _index(task: Task, index: str, store: PassageStore) -> Manifest:
    with steps() as step:
        return build_index(task.name, index, store, force=task.replaces(index), progress=step(index, "passages"))


def _vectors(task: Task, encoder: str, store: PassageStore) -> Manifest:
    """Embed the passages, or fetch and import what is published."""
    spec, published = encoder_spec(encoder), task.published(encoder)
    with steps() as step:
        if published is None:
            progress = EmbedProgress(
                step(encoder, "passages"),
                step(f"{encoder}, tokens", "tokens"),
                lambda node: step(f"{encoder} on {node}", "passages"),
            )
            manifest = build_vectors(task.name, spec, store, task.embedding, force=task.replaces(encoder), progress=progress)
            if task.vectors.verify:
                verify_vectors(task.name, spec, store, task.vectors.verify, task.embedding.device)
            return manifest
        source = fetch(task.corpus.name, encoder, published, step(f"fetching {encoder}", "B"))
        return import_vectors(task.name, spec, store, source, task.import_options(spec.name), step(encoder, "passages"))


def _needs(task: Task, forecast: Forecast, *, has_store: bool) -> Iterator[Need]:
    """Yield what each step that is not done yet needs."""
    if not has_store:
        yield store_need(forecast.n_passages, forecast.passage_bytes)
    for index in task.indexes:
        if task.is_kept(index):
            continue
        made = vector_index_name(index)
        if index in ENCODERS:
            yield _vectors_need(task, encoder_spec(index), forecast)
        elif made is not None:
            yield vector_index_need(made, forecast.n_passages)
        else:
            need = lucene_need if index == "lucene" else bm25_need
            yield need(forecast.n_passages, forecast.passage_bytes)


def _vectors_need(task: Task, spec: EncoderSpec, forecast: Forecast) -> Need:
    published = task.published(spec.name)
    if published is not None:
        return import_need(forecast.n_passages, spec, published, task.import_options(spec.name))
    # While nothing of the corpus is here, the encoder is timed on passages of the sample corpus.
    passages = forecast.sample or list(islice(sample.passages(), SAMPLE_PASSAGES))
    with steps() as step:
        spec.folder("passage", step(f"checkpoint of {spec.name}", "B"))  # before the clock runs
    return vectors_need(forecast.n_passages, forecast.passage_bytes, passages, spec, task.embedding)


def _report_skipped(name: str, n_skipped: int) -> None:
    if not n_skipped:
        return
    note(f"left out: {n_skipped:,} record{'' if n_skipped == 1 else 's'}, listed in {store_path(name) / SKIPPED}")
    for file, line, reason in islice(skipped_records(name), _SHOWN_SKIPPED):
        note(f"    {file}, line {line}: {' '.join(reason.split())}")

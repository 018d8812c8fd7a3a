"""Plan (disk and memory of each step) and steps of ``idx build``: passages, vectors and indexes of a corpus."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import staged_bytes, staging_path
from wikidx.base.artifacts.home import free_disk_bytes, home
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import InputError, StorageError
from wikidx.base.machine.memory import available_bytes
from wikidx.base.progress import Step, format_bytes, silent_steps
from wikidx.corpora.build import build_store, open_store, store_path
from wikidx.corpora.passage import Passage
from wikidx.corpora.reading.splitters import Tokenizer as SplittingTokenizer
from wikidx.corpora.resolving import rebuild_advice
from wikidx.corpora.size_estimate import CorpusEstimate, estimate_corpus, estimate_from_store
from wikidx.corpora.store import PassageStore

from .analysis.languages import foreign_language
from .build import build_index, build_vectors, follow
from .build_spec import PASSAGES, BuildSpec
from .catalog import IndexRef, index_ref
from .embedding.embed import EmbedProgress, embedding_bytes, resolve_resources
from .encoders.spec import EncoderSpec
from .encoders.tokenizing import Tokenizer
from .indexes.kinds import Size
from .naming import encoder_spec, is_encoder, parse_index_name
from .published.addresses import fetch
from .published.importing import import_vectors, verify_vectors
from .vectors.file import finished_rows

logger = logging.getLogger(__name__)

_STORE_BYTES = (2 * 0.45, 25)  # compressed fraction of a passage's bytes, which are copied at the end, and array bytes per passage
_FOLLOWED_ROWS, _BYTES_PER_ROW = 4 * 65_536, 300  # passages in memory while an index is prepared, and Python's bytes for each
_FOLLOWED_BYTES = 2_048  # mean size of passages from which on nothing is prepared
_VOCABULARY_SHARE = 0.02  # bytes of the terms in memory, per byte of text
_CHARACTERS_PER_TOKEN = 16  # more than real texts have
_FAR_TOO_MUCH = 2.0  # times the free memory: what takes less may fit, because estimates are upper ones


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Upper estimate of one build step.

    Attributes:
        step: name of the index, or "passages".
        disk_bytes: size on disk.
        memory_bytes: memory of the processes; None: it is taken elsewhere, by a server or the nodes of a cluster.
        n_truncated: number of passages that are longer than the encoder's maximum length. Only their beginning is embedded.
    """

    step: str
    disk_bytes: float
    memory_bytes: float | None
    n_truncated: int = 0


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Estimate of a build.

    Attributes:
        corpus: estimate of the corpus.
        download_bytes: number of bytes still to be downloaded.
        estimates: estimates of the unfinished steps.
        shortage: message about missing disk space or memory; None if there is enough.
        notes: messages about parts of the input that the build leaves out, and about a lack of memory.
        store: the store that is kept, if any.
    """

    corpus: CorpusEstimate
    download_bytes: int
    estimates: list[StepEstimate]
    shortage: str | None
    notes: list[str]
    store: PassageStore | None = None


def plan(spec: BuildSpec) -> BuildPlan:
    """Estimate each unfinished step of a build.

    Raises:
        InputError, MissingExtraError: an input or a package is missing.
    """
    store = open_store(spec.name) if spec.reusable_store() is not None else None
    has_store = store is not None
    source = spec.source.corpus.path
    if not has_store and spec.source.keep_store and source is not None and not source.exists():
        raise InputError(f"'{spec.name}' was built from {source}, which is not there any more: {rebuild_advice(spec.source.corpus.name)}")
    corpus = estimate_from_store(store) if store is not None else estimate_corpus(spec.source.corpus, spec.source.options)
    estimates = list(_estimate_steps(spec, corpus, has_store=has_store))
    published = {encoder: spec.published(encoder) for encoder in spec.indexes if is_encoder(encoder)}
    missing_bytes = (
        vectors.missing_bytes(spec.source.corpus.name, encoder) for encoder, vectors in published.items() if vectors is not None
    )
    download_bytes = corpus.download_bytes + sum(missing_bytes)
    n_staged = sum(map(staged_bytes, (store_path(spec.name), *(index_ref(spec.name, index).path for index in spec.indexes))))
    return BuildPlan(
        corpus,
        download_bytes,
        estimates,
        _shortage(estimates, download_bytes - n_staged),
        list(_notes(spec, corpus, estimates, has_store=has_store)),
        store,
    )


def _notes(spec: BuildSpec, corpus: CorpusEstimate, estimates: Sequence[StepEstimate], *, has_store: bool) -> Iterator[str]:
    """Yield messages about parts of the input that the build leaves out, and about a lack of memory."""
    if corpus.unkept_fields:
        yield f"fields that are not kept: {', '.join(corpus.unkept_fields):.200} (a passage has an id, a title and a text)"
    for index in spec.indexes:
        if _analyses_english(spec, index) and (language := foreign_language([passage.text for passage in corpus.sample])):
            yield (
                f"the passages look {language}, and '{index}' analyses English: it knows no other endings and stop words, so that it finds "
                f"fewer passages; its scores are exact all the same (--index bm25-NAME --plugin FILE.py:NAME takes an analyzer of yours)"
            )
    for estimate in estimates:
        if estimate.n_truncated:
            share = f"{100 * estimate.n_truncated / corpus.n_passages:.1f} %"
            read = f"the {encoder_spec(estimate.step).max_passage_tokens} tokens that {estimate.step} reads"
            advice = _splitting_advice(spec, has_store=has_store)
            yield f"passages longer than {read}: about {estimate.n_truncated:,} ({share}), whose rest is not searched by it{advice}"
        if note := _memory_note(estimate):
            yield note


def _analyses_english(spec: BuildSpec, index: str) -> bool:
    """Return whether an index that is to be built analyses texts as English."""
    ref = index_ref(spec.name, index)
    return ref.name.source == "passages" and ref.kind.takes_analyzer and not ref.name.analyzer and not spec.is_reusable(index)


def _splitting_advice(spec: BuildSpec, *, has_store: bool) -> str:
    """Return how to split the passages of a user's file; empty for a corpus that idx knows."""
    corpus = spec.source.corpus
    if corpus.path is None:
        return ""
    shorter = "--split words" if corpus.reading.get("split") == "none" else "a smaller --split"
    if spec.source.keep_store:
        return f"; to split them with {shorter}, {rebuild_advice(corpus.name)}"
    return f"; {shorter}{' --force' if has_store else ''} splits them"


def splitting_tokenizer(indexes: Sequence[str]) -> SplittingTokenizer | None:
    """Return the tokenizer of the first encoder of some indexes, by which documents may be split; it is loaded when it is used."""
    encoder = next((name.encoder for name in map(parse_index_name, indexes) if name.encoder), None)
    if encoder is None:
        return None

    @functools.cache
    def load() -> Tokenizer:
        spec = encoder_spec(encoder)
        if not spec.has_network:
            raise InputError(f"the tokens of '{encoder}' are not known here, because it computes vectors elsewhere: split by words:100")
        return Tokenizer(spec, "passage")

    return SplittingTokenizer(encoder, lambda text: load().offsets(text))


def build(spec: BuildSpec, step: Step = silent_steps) -> Build:
    """Plan and run a build, and log the plan's notes; see ``plan`` and ``Build.run``.

    Raises:
        StorageError: the disk or the memory is too small.
    """
    build_plan = plan(spec)
    for message in build_plan.notes:
        logger.warning("%s", message)
    if build_plan.shortage:
        raise StorageError(build_plan.shortage)
    building = Build(spec, step, build_plan.store)
    building.run()
    return building


class Build:
    """A build of one part after the other.

    Args:
        spec: what to build.
        step: makes the progress callback of a step.
        store: the store that is kept, if it is open already.

    Attributes:
        manifests: manifests of the finished parts.
    """

    def __init__(self, spec: BuildSpec, step: Step = silent_steps, store: PassageStore | None = None) -> None:
        self._spec, self._step, self._store = spec, step, store
        self.manifests = dict[str, Manifest]()

    @property
    def store(self) -> PassageStore:
        """The store of the finished passages, opened once."""
        if self._store is None or self._store.fingerprint != self.manifests[PASSAGES].fingerprint:
            self._store = open_store(self._spec.name)
        return self._store

    def run(self) -> dict[str, Manifest]:
        """Build all missing artifacts; return the manifests of the passages and of each index.

        Raises:
            IdxError: the build failed; the next call resumes it.
        """
        for name in self._spec.artifacts:
            self.run_part(name)
        return self.manifests

    def run_part(self, name: str) -> None:
        """Build one of ``spec.artifacts`` after those before it, unless it exists; raises as ``run`` does."""
        spec, step = self._spec, self._step
        if name == PASSAGES:
            manifest = _build_store(spec, step)
        elif is_encoder(name):
            manifest = _build_vectors(spec, name, self.store, step)
        else:
            manifest = build_index(spec.name, name, self.store, force=spec.replaces(name), progress=step(name, "passages"))
        self.manifests[name] = manifest


def describe_interruption(spec: BuildSpec, finished: Mapping[str, Manifest]) -> str:
    """Return what an interrupted build has done, and where the next one resumes; ``finished`` are the manifests of the finished parts."""
    done, name = f"{', '.join(finished)} finished", next((name for name in spec.artifacts if name not in finished), None)
    if name is None:
        return f"stopped: {done}"
    resumes = f"the same command resumes with {name}"
    if is_encoder(name):
        n_rows = finished[PASSAGES].count("rows")
        is_finished = finished_rows(staging_path(index_ref(spec.name, name).path), n_rows)
        if 0 < (n := is_finished.sum()) < n_rows:
            resumes = f"{name} has {n:,} of {n_rows:,} vectors; the same command resumes from row {is_finished.argmin():,}"
    return f"stopped: {done}; {resumes}" if finished else f"stopped: {resumes}"


def _build_store(spec: BuildSpec, step: Step) -> Manifest:
    existing = spec.reusable_store() if spec.source.keep_store else None
    index = spec.index_while_storing
    return existing or build_store(
        spec.source.corpus,
        spec.source.options,
        fetching=step("fetching", "B"),
        storing=step("passages", "passages"),
        follow=None if index is None else partial(follow, index_ref(spec.name, index)),
    )


def _build_vectors(spec: BuildSpec, name: str, store: PassageStore, step: Step) -> Manifest:
    """Embed the passages, or download and import published vectors."""
    encoder, published = encoder_spec(name), spec.published(name)
    if published is not None:
        source = fetch(spec.source.corpus.name, name, published, step(f"fetching {name}", "B"))
        return import_vectors(spec.name, encoder, store, source, spec.import_options(name), step(name, "passages"))
    progress = EmbedProgress(step(name, "passages"), step(f"{name}, tokens", "tokens"), lambda node: step(f"{name} on {node}", "passages"))
    manifest = build_vectors(spec.name, encoder, store, spec.embedding, force=spec.replaces(name), progress=progress)
    if spec.vectors.verify:
        verify_vectors(spec.name, encoder, store, spec.vectors.verify, spec.embedding.device)
    return manifest


def _shortage(estimates: Sequence[StepEstimate], download_bytes: int) -> str | None:
    """Return a message if the disk is too small for all steps together, or the memory far too small for one; None if there is enough."""
    free, needed = free_disk_bytes(), download_bytes + sum(estimate.disk_bytes for estimate in estimates)
    if needed > free:
        return f"about {format_bytes(needed)} are needed under {home()}, {format_bytes(free)} are free: set IDX_HOME to a larger disk"
    note = next(filter(None, (_memory_note(estimate, _FAR_TOO_MUCH) for estimate in estimates)), None)
    return note and f"{note}: raise this process's limit (ulimit, or the container's), or use a machine with more"


def _memory_note(estimate: StepEstimate, share: float = 1.0) -> str | None:
    """Return a message for the user if a step takes more than this share of the free memory; otherwise None."""
    available = available_bytes()
    if estimate.memory_bytes is None or estimate.memory_bytes <= share * available:
        return None
    return f"{estimate.step} takes about {format_bytes(estimate.memory_bytes)} of memory, {format_bytes(available)} are available"


def _estimate_steps(spec: BuildSpec, corpus: CorpusEstimate, *, has_store: bool) -> Iterator[StepEstimate]:
    """Yield the estimate of each unfinished step."""
    if not has_store:
        yield _estimate_store(corpus, is_followed=spec.index_while_storing is not None)
    for index in spec.indexes:
        if spec.is_reusable(index):
            continue
        ref = index_ref(spec.name, index)
        yield _estimate_vectors(spec, encoder_spec(index), corpus) if ref.name.source == "encoder" else _estimate_index(ref, corpus)


def _estimate_store(corpus: CorpusEstimate, *, is_followed: bool) -> StepEstimate:
    """Return the estimate for a store, while whose passages are stored an index may be prepared."""
    share, array_bytes = _STORE_BYTES
    n, memory_bytes = corpus.n_passages, 0.25e9
    if is_followed:
        text_bytes = min(corpus.passage_bytes, _FOLLOWED_BYTES)
        memory_bytes += min(n, _FOLLOWED_ROWS) * (text_bytes + _BYTES_PER_ROW) + _VOCABULARY_SHARE * n * text_bytes
    return StepEstimate(PASSAGES, n * (share * corpus.passage_bytes + array_bytes), memory_bytes)


def _estimate_index(ref: IndexRef, corpus: CorpusEstimate) -> StepEstimate:
    """Return the estimate for a lexical index, or an index built from an encoder's vectors."""
    dim = 0
    if ref.name.source == "vectors":
        dim = ref.vectors.manifest(None).count("dim") if ref.vectors.is_built else encoder_spec(ref.name.encoder).dim
    return StepEstimate(str(ref.name), *ref.kind.estimate(Size(corpus.n_passages, dim, corpus.passage_bytes)))


def _estimate_vectors(spec: BuildSpec, encoder: EncoderSpec, corpus: CorpusEstimate) -> StepEstimate:
    """Return the estimate for published vectors, without the download, or for vectors to compute."""
    published = spec.published(encoder.name)
    if published is not None:
        dtype = spec.import_options(encoder.name).dtype
        n_bytes = corpus.n_passages * encoder.dim * (np.dtype(dtype).itemsize if dtype else published.stored_bytes)
        return StepEstimate(encoder.name, n_bytes, 0.5e9 + 100 * corpus.n_passages)
    resources = resolve_resources(spec.embedding, encoder)
    dim = encoder.truncate_dim or encoder.dim
    disk_bytes = corpus.n_passages * dim * np.dtype(resources.precision.stored).itemsize
    if not encoder.has_network:
        return StepEstimate(encoder.name, disk_bytes, None)
    n_truncated = round((_n_tokens(encoder, corpus.sample) > encoder.max_passage_tokens).mean() * corpus.n_passages) if corpus.sample else 0
    memory_bytes = None if resources.ray else embedding_bytes(encoder, resources)
    return StepEstimate(encoder.name, disk_bytes, memory_bytes, n_truncated)


def _n_tokens(spec: EncoderSpec, passages: Sequence[Passage]) -> NDArray[np.int64]:
    """Return the number of tokens of each passage before truncation. Of very long passages, only a beginning is counted."""
    n_characters = _CHARACTERS_PER_TOKEN * spec.max_passage_tokens
    beginnings = (passage._replace(text=passage.text[:n_characters]) for passage in passages)
    return Tokenizer(spec, "passage", max_tokens=sys.maxsize).passages(beginnings).lengths()

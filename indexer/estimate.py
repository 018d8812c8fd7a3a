"""Estimates of a build: disk, memory and time of each step.

They are computed from rates measured on two cores in 2026. The rate of an encoder is measured on this machine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.home import free_disk_bytes, home
from wikidx.corpora.estimate import CorpusEstimate, mean_bytes
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.corpora.progress import format_bytes

from .catalog import IndexRef
from .embedding.embed import resolve_resources
from .embedding.options import EmbedOptions, Resources
from .embedding.pipeline import PassageEncoder
from .embedding.timing import Measurement, keep_measurement, kept_measurement, measure_encoder
from .encoders.spec import EncoderSpec
from .encoders.tokenizing import Tokenizer
from .indexes.kinds import Size
from .naming import encoder_spec
from .published.addresses import PublishedVectors
from .published.importing import ImportOptions
from .vectors.file import GPU_RANGE_ROWS

_STORE_PASSAGES_PER_S = 40_000
_STORE_BYTES = (0.47, 25)  # compressed fraction of a passage's bytes, and array bytes per passage
_IMPORT_BYTES_PER_S = 150e6  # bytes read and written
_TOKENIZING_BYTES = 0.4e9  # memory of each process that tokenises for a GPU
_RANGES_HELD = 2  # ranges in memory: one range being computed, and a copy being written

_TIMED_PASSAGES = 200  # size of the sample on which an encoder is timed
_TIMED_CORPUS_PASSAGES = 5_000  # an encoder is timed only for a corpus of at least this size
_CHARACTERS_PER_TOKEN = 16  # more than real texts have

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Upper estimate of the resources of one build step.

    Attributes:
        step: name of the index, or "passages".
        disk_bytes: size on disk.
        memory_bytes: memory of the process; None: unknown, because the corpus is too small to time an encoder.
        time_s: duration; None: unknown for the same reason.
        n_truncated: number of passages that are longer than the encoder's maximum length. Only their beginning is embedded.
    """

    step: str
    disk_bytes: float
    memory_bytes: float | None
    time_s: float | None
    n_truncated: int = 0


def estimate_store(n_passages: int, passage_bytes: float) -> StepEstimate:
    """Return the estimate for a store of ``n_passages`` passages with a mean of ``passage_bytes`` bytes."""
    share, array_bytes = _STORE_BYTES
    return StepEstimate("passages", n_passages * (share * passage_bytes + array_bytes), 0.5e9, n_passages / _STORE_PASSAGES_PER_S)


def estimate_vectors(corpus: CorpusEstimate, spec: EncoderSpec, options: EmbedOptions) -> StepEstimate:
    """Return the estimate for one encoder's vectors.

    The time is proportional to the number of tokens that the encoder reads. An earlier measurement on this machine is used again.
    Otherwise, the encoder is timed on passages of the corpus, or of the sample corpus if none is at hand. For a small corpus, the
    encoder is not timed, nor is one that a server computes.

    Raises:
        MissingExtraError: the encoder needs packages that are not installed.
    """
    resources = resolve_resources(options, spec)
    if spec.is_served:
        return scale_measurement(spec, resources, None, corpus.n_passages, 0, 0)
    passages = corpus.sample or list(islice(sample.passages(), _TIMED_PASSAGES))
    n_tokens, n_truncated = count_tokens(corpus, spec)
    measurement = kept_measurement(spec, resources)
    if measurement is None and corpus.n_passages >= _TIMED_CORPUS_PASSAGES:
        measurement = _measure(spec, resources, passages[:_TIMED_PASSAGES])
    return scale_measurement(spec, resources, measurement, corpus.n_passages, n_tokens, n_truncated)


def count_tokens(corpus: CorpusEstimate, spec: EncoderSpec, tokenizer: EncoderSpec | None = None) -> tuple[float, int]:
    """Return the tokens that an encoder reads of a corpus, by a sample, and the number of passages that are longer than it reads.

    ``tokenizer`` is an encoder whose tokenizer is used instead of its own.
    """
    passages = corpus.sample or list(islice(sample.passages(), _TIMED_PASSAGES))
    lengths = _full_lengths(tokenizer or spec, passages)
    tokens_per_byte = np.minimum(lengths, spec.max_passage_tokens).sum() / (len(passages) * mean_bytes(passages))
    n_truncated = round((lengths > spec.max_passage_tokens).mean() * corpus.n_passages) if corpus.sample else 0
    return corpus.n_passages * corpus.passage_bytes * tokens_per_byte, n_truncated


def _full_lengths(spec: EncoderSpec, passages: Sequence[Passage]) -> NDArray[np.int64]:
    """Return the number of tokens of each passage before truncation. Of very long passages, only a beginning is counted."""
    n_characters = _CHARACTERS_PER_TOKEN * spec.max_passage_tokens
    return Tokenizer(spec, "passage").full_lengths(passage._replace(text=passage.text[:n_characters]) for passage in passages)


def _measure(spec: EncoderSpec, resources: Resources, passages: Sequence[Passage]) -> Measurement:
    """Time an encoder. The measurement is kept, except on a cluster, whose nodes may change."""
    if resources.ray is not None:
        from .embedding.cluster.embedding import measure_on_ray

        logger.info("timing '%s' on %d passages, on a node of the cluster", spec.name, len(passages))
        return measure_on_ray(spec, resources, passages)
    logger.info("timing '%s' on %d passages, for this estimate and later ones on this machine", spec.name, len(passages))
    measurement = measure_encoder(PassageEncoder(spec, resources), passages)
    keep_measurement(spec, resources, measurement)
    return measurement


def scale_measurement(
    spec: EncoderSpec, resources: Resources, measurement: Measurement | None, n_passages: int, n_tokens: float, n_truncated: int
) -> StepEstimate:
    """Return the estimate for an encoder's vectors of ``n_passages`` passages, of which it reads ``n_tokens`` tokens in total."""
    passage_bytes = n_passages * np.dtype(resources.precision.stored).itemsize
    if measurement is None:
        return StepEstimate(spec.name, passage_bytes * spec.dim, None, None, n_truncated)
    range_bytes = GPU_RANGE_ROWS * measurement.dim * np.dtype(np.float32).itemsize
    bytes_per_device = measurement.peak_bytes + _RANGES_HELD * range_bytes + resources.n_tokenizing * _TOKENIZING_BYTES
    n_devices = len(resources.devices)
    time_s = n_tokens * measurement.seconds_per_token / n_devices
    return StepEstimate(spec.name, passage_bytes * measurement.dim, n_devices * bytes_per_device, time_s, n_truncated)


def estimate_index(ref: IndexRef, n_passages: int, passage_bytes: float) -> StepEstimate:
    """Return the estimate for a lexical index, or an index built from an encoder's vectors.

    Raises:
        MissingExtraError: a package that the build needs is not installed.
    """
    dim = encoder_spec(ref.name.encoder).dim if ref.name.encoder else 0
    if ref.name.encoder and ref.vectors.is_built:
        dim = ref.vectors.manifest(None).count("dim")
    return StepEstimate(str(ref.name), *ref.kind.estimate(Size(n_passages, dim, passage_bytes)))


def estimate_import(n_passages: int, spec: EncoderSpec, published: PublishedVectors, options: ImportOptions) -> StepEstimate:
    """Return the estimate for importing published vectors, without the download."""
    n_bytes = n_passages * spec.dim * (np.dtype(options.dtype).itemsize if options.dtype else published.stored_bytes)
    return StepEstimate(spec.name, n_bytes, 0.5e9 + 100 * n_passages, (n_bytes + published.download_bytes) / _IMPORT_BYTES_PER_S)


def disk_shortage(estimates: Sequence[StepEstimate], download_bytes: int) -> str | None:
    """Return a message for the user if the data home's disk is too small for all steps together; otherwise None."""
    free, needed = free_disk_bytes(), download_bytes + sum(estimate.disk_bytes for estimate in estimates)
    if needed <= free:
        return None
    return f"about {format_bytes(needed)} are needed under {home()}, {format_bytes(free)} are free: set IDX_HOME to a larger disk"

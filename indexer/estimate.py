"""Estimates of a build: disk, memory and time of each step.

They are computed from rates measured on two cores in 2026. The rate of an encoder is measured on this machine, on a sample of passages, and
kept in the data home for later estimates.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import parse_json, write_durably
from wikidx.base.artifacts.home import free_disk_bytes, home
from wikidx.base.artifacts.manifest import package_versions
from wikidx.base.machine.memory import available_bytes
from wikidx.base.machine.threads import n_threads
from wikidx.base.progress import format_bytes
from wikidx.corpora.estimate import CorpusEstimate, mean_bytes
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage

from .catalog import IndexRef
from .embedding.embed import resolve_resources
from .embedding.options import EmbedOptions, Resources
from .embedding.pipeline import PassageEncoder
from .encoders.spec import EncoderSpec
from .encoders.tokenizing import Tokenizer
from .indexes.kinds import Size
from .naming import encoder_spec
from .published.addresses import PublishedVectors
from .published.importing import ImportOptions
from .vectors.file import GPU_RANGE_ROWS

_STORE_PASSAGES_PER_S = 60_000
_FOLLOWED_PASSAGES_PER_S = 50_000  # of a store, while an index is prepared
_FOLLOWED_SHARE = 0.17  # of the index's own time, which is left afterwards
_FOLLOWED_ROWS, _BYTES_PER_ROW = 4 * 65_536, 300  # passages in memory, and Python's bytes for each
_VOCABULARY_SHARE = 0.02  # bytes of the terms in memory, per byte of text
_STORE_BYTES = (0.45, 25)  # compressed fraction of a passage's bytes, and array bytes per passage
_IMPORT_BYTES_PER_S = 150e6  # bytes read and written
_TOKENIZING_BYTES = 0.4e9  # memory of each process that tokenises for a GPU
_RANGES_HELD = 2  # ranges in memory: one range being computed, and a copy being written

_TIMED_PASSAGES = 200  # size of the sample on which an encoder is timed
_TIMED_CORPUS_PASSAGES = 5_000  # an encoder is timed only for a corpus of at least this size
_WARM_UP_PASSAGES = 8
_CHARACTERS_PER_TOKEN = 16  # more than real texts have

logger = logging.getLogger(__name__)


class Measurement(NamedTuple):
    """Measurements of an encoder on a sample.

    Attributes:
        seconds_per_token: seconds per token that the encoder reads, on one device.
        dim: components of a vector.
        peak_bytes: peak memory of the process.
    """

    seconds_per_token: float
    dim: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Upper estimate of the resources of one build step.

    Attributes:
        step: name of the index, or "passages".
        disk_bytes: size on disk.
        memory_bytes: memory of the process; None: unknown, because the encoder was not timed.
        time_s: duration; None: unknown for the same reason.
        n_truncated: number of passages that are longer than the encoder's maximum length. Only their beginning is embedded.
    """

    step: str
    disk_bytes: float
    memory_bytes: float | None
    time_s: float | None
    n_truncated: int = 0


def estimate_store(n_passages: int, passage_bytes: float, *, is_followed: bool = False) -> StepEstimate:
    """Return the estimate for a store.

    Args:
        n_passages: number of passages.
        passage_bytes: their mean size in bytes.
        is_followed: whether an index is prepared meanwhile.
    """
    share, array_bytes = _STORE_BYTES
    memory_bytes, passages_per_s = 0.25e9, _STORE_PASSAGES_PER_S
    if is_followed:
        memory_bytes += min(n_passages, _FOLLOWED_ROWS) * (passage_bytes + _BYTES_PER_ROW)
        memory_bytes += _VOCABULARY_SHARE * n_passages * passage_bytes
        passages_per_s = _FOLLOWED_PASSAGES_PER_S
    return StepEstimate("passages", n_passages * (share * passage_bytes + array_bytes), memory_bytes, n_passages / passages_per_s)


def estimate_vectors(corpus: CorpusEstimate, spec: EncoderSpec, options: EmbedOptions) -> StepEstimate:
    """Return the estimate for one encoder's vectors.

    The time is proportional to the number of tokens that the encoder reads. An earlier measurement on this machine is used again.
    Otherwise, the encoder is timed on passages of the corpus, or of the sample corpus if none is at hand. For a small corpus, the
    encoder is not timed, nor on a Ray cluster, nor one that a server computes.

    Raises:
        MissingExtraError: the encoder needs packages that are not installed.
    """
    resources = resolve_resources(options, spec)
    if spec.is_served:
        return scale_measurement(spec, resources, None, corpus.n_passages, 0, 0)
    passages = corpus.sample or list(islice(sample.passages(), _TIMED_PASSAGES))
    n_tokens, n_truncated = count_tokens(corpus, spec)
    measurement = kept_measurement(spec, resources)
    if measurement is None and resources.ray is None and corpus.n_passages >= _TIMED_CORPUS_PASSAGES:
        timed = passages[:_TIMED_PASSAGES]
        logger.info("timing '%s' on %d passages, for this estimate and later ones on this machine", spec.name, len(timed))
        measurement = measure_encoder(PassageEncoder(spec, resources), timed)
        keep_measurement(spec, resources, measurement)
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


def measure_encoder(encoder: PassageEncoder, passages: Sequence[Passage]) -> Measurement:
    """Time an encoder on some passages after a warm-up.

    On a GPU, other processes tokenise meanwhile, and the slower of both counts.
    """
    encoder.encode(passages if encoder.n_tokenizing else passages[:_WARM_UP_PASSAGES])  # on a GPU, each new shape takes long once
    started = time.perf_counter()
    n_tokens = encoder.count_tokens(passages)
    tokenized = time.perf_counter()
    vectors = encoder.encode(passages)
    seconds, tokenizing_seconds = time.perf_counter() - tokenized, tokenized - started
    if encoder.n_tokenizing:
        seconds = max(seconds - tokenizing_seconds, tokenizing_seconds / encoder.n_tokenizing)
    seconds_per_token = seconds / n_tokens
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Measurement(seconds_per_token, vectors.shape[1], peak_bytes)


def kept_measurement(spec: EncoderSpec, resources: Resources) -> Measurement | None:
    """Return an earlier measurement on this machine with the same checkpoint, resources and package versions; None if none is kept."""
    try:
        seconds_per_token, dim, peak_bytes = _read_timings()[_timing_key(spec, resources)]
        return Measurement(float(seconds_per_token), int(dim), int(peak_bytes))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def keep_measurement(spec: EncoderSpec, resources: Resources, measurement: Measurement) -> None:
    """Write a measurement to the data home, if the data home is writable."""
    with contextlib.suppress(OSError):
        home().mkdir(parents=True, exist_ok=True)
        write_durably(_timings_path(), json.dumps(_read_timings() | {_timing_key(spec, resources): measurement}, indent=1).encode())


def _timings_path() -> Path:
    return home() / "timings.json"


def _read_timings() -> dict[str, Any]:
    try:
        kept = parse_json(_timings_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _timing_key(spec: EncoderSpec, resources: Resources) -> str:
    versions = package_versions(("wikidx", "torch", "transformers"))
    return json.dumps([spec.name, str(spec.folder("passage")), *resources, n_threads(), socket.gethostname(), versions])


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


def estimate_index(ref: IndexRef, n_passages: int, passage_bytes: float, *, has_followed: bool = False) -> StepEstimate:
    """Return the estimate for a lexical index, or an index built from an encoder's vectors.

    Args:
        ref: the index.
        n_passages: number of passages.
        passage_bytes: their mean size in bytes.
        has_followed: whether the index is prepared while the passages are stored.

    Raises:
        MissingExtraError: a package that the build needs is not installed.
    """
    dim = encoder_spec(ref.name.encoder).dim if ref.name.encoder else 0
    if ref.name.encoder and ref.vectors.is_built:
        dim = ref.vectors.manifest(None).count("dim")
    disk_bytes, memory_bytes, time_s = ref.kind.estimate(Size(n_passages, dim, passage_bytes))
    return StepEstimate(str(ref.name), disk_bytes, memory_bytes, time_s * (_FOLLOWED_SHARE if has_followed else 1))


def estimate_import(n_passages: int, spec: EncoderSpec, published: PublishedVectors, options: ImportOptions) -> StepEstimate:
    """Return the estimate for importing published vectors, without the download."""
    n_bytes = n_passages * spec.dim * (np.dtype(options.dtype).itemsize if options.dtype else published.stored_bytes)
    return StepEstimate(spec.name, n_bytes, 0.5e9 + 100 * n_passages, (n_bytes + published.download_bytes) / _IMPORT_BYTES_PER_S)


def memory_note(estimate: StepEstimate, share: float = 1.0) -> str | None:
    """Return a message for the user if a step takes more than this share of the free memory; otherwise None."""
    needed, available = estimate.memory_bytes or 0, available_bytes()
    if needed <= share * available:
        return None
    return f"{estimate.step} takes about {format_bytes(needed)} of memory, {format_bytes(available)} are available"


def memory_shortage(estimates: Sequence[StepEstimate]) -> str | None:
    """Return a message for the user if a step takes more than twice the free memory; otherwise None.

    A step that takes less may fit, because estimates are upper ones.
    """
    note = next(filter(None, (memory_note(estimate, 2.0) for estimate in estimates)), None)
    return note and f"{note}: raise this process's limit (ulimit, or the container's), or use a machine with more"


def disk_shortage(estimates: Sequence[StepEstimate], download_bytes: int) -> str | None:
    """Return a message for the user if the data home's disk is too small for all steps together; otherwise None."""
    free, needed = free_disk_bytes(), download_bytes + sum(estimate.disk_bytes for estimate in estimates)
    if needed <= free:
        return None
    return f"about {format_bytes(needed)} are needed under {home()}, {format_bytes(free)} are free: set IDX_HOME to a larger disk"

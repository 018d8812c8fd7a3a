"""Estimates of a build: disk, memory and time of each step.

They are computed from rates measured on two cores in 2026. An encoder is timed on a sample of passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wikidx.corpora.artifacts.home import free_disk_bytes, home
from wikidx.corpora.passage import Passage
from wikidx.corpora.progress import format_bytes

from .catalog import IndexRef
from .embedding.embed import resolve_resources
from .embedding.options import EmbedOptions, Resources
from .embedding.pipeline import Measurement, PassageEncoder, measure_encoder
from .encoders.spec import EncoderSpec
from .indexes.kinds import Size
from .naming import encoder_spec
from .published.addresses import PublishedVectors
from .published.importing import ImportOptions
from .vectors.file import RANGE_ROWS

_STORE_PASSAGES_PER_S = 40_000
_STORE_BYTES = (0.47, 25)  # compressed fraction of a passage's bytes, and array bytes per passage
_IMPORT_BYTES_PER_S = 150e6  # bytes read and written
_TOKENIZING_BYTES = 0.4e9  # memory of each process that tokenises for a GPU
_RANGES_HELD = 2  # ranges in memory: one range being computed, and a copy being written

SAMPLE_PASSAGES = 200  # number of passages to time an encoder on


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """Upper estimate of the resources of one build step."""

    step: str
    disk_bytes: float
    memory_bytes: float
    time_s: float


def estimate_store(n_passages: int, passage_bytes: float) -> StepEstimate:
    """Return the estimate for a store of ``n_passages`` passages with a mean of ``passage_bytes`` bytes."""
    share, array_bytes = _STORE_BYTES
    return StepEstimate("passages", n_passages * (share * passage_bytes + array_bytes), 0.5e9, n_passages / _STORE_PASSAGES_PER_S)


def estimate_vectors(
    n_passages: int, passage_bytes: float, sample: Sequence[Passage], spec: EncoderSpec, options: EmbedOptions
) -> StepEstimate:
    """Return the estimate for one encoder's vectors. It extrapolates the time of up to 200 sample passages by their bytes of text.

    Raises:
        MissingExtraError: the encoder needs packages that are not installed.
    """
    resources = resolve_resources(options, spec)
    if resources.ray is None:
        measurement = measure_encoder(PassageEncoder(spec, resources), sample[:SAMPLE_PASSAGES])
    else:
        from .embedding.cluster.embedding import measure_on_ray

        measurement = measure_on_ray(spec, resources, sample[:SAMPLE_PASSAGES])
    return scale_measurement(spec.name, resources, measurement, n_passages, n_passages * passage_bytes)


def scale_measurement(name: str, resources: Resources, measurement: Measurement, n_passages: int, n_bytes: float) -> StepEstimate:
    """Return the estimate for an encoder's vectors of ``n_passages`` passages with ``n_bytes`` bytes of text in total."""
    disk_bytes = n_passages * measurement.dim * np.dtype(resources.precision.stored).itemsize
    range_bytes = RANGE_ROWS * measurement.dim * np.dtype(np.float32).itemsize
    bytes_per_device = measurement.peak_bytes + _RANGES_HELD * range_bytes + resources.n_tokenizing * _TOKENIZING_BYTES
    return StepEstimate(
        name, disk_bytes, len(resources.devices) * bytes_per_device, n_bytes * measurement.seconds_per_byte / len(resources.devices)
    )


def estimate_index(ref: IndexRef, n_passages: int, passage_bytes: float) -> StepEstimate:
    """Return the estimate for a lexical index, or an index built from an encoder's vectors.

    Raises:
        MissingExtraError: a package that the build needs is not installed.
    """
    dim = encoder_spec(ref.name.encoder).dim if ref.name.encoder else 0
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

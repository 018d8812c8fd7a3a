"""Estimates of a build: disk, memory and time of each step, from measured rates (two cores, 2026) and, for an encoder, a timed sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shutil import disk_usage

import numpy as np

from wikidx.corpora.artifacts.home import home
from wikidx.corpora.passage import Passage

from .catalog import IndexRef
from .embedding.embed import resources
from .embedding.options import EmbedOptions, Resources
from .embedding.pipeline import Measured, PassageEncoder, measured
from .encoders.spec import EncoderSpec
from .indexes.kinds import Size
from .naming import encoder_spec
from .published.addresses import PublishedVectors
from .published.importing import ImportOptions
from .vectors.file import RANGE_ROWS

_STORE_PASSAGES_PER_S = 40_000
_STORE_BYTES = (0.47, 25)  # share of a passage's bytes after compression, and bytes of arrays per passage
_IMPORT_BYTES_PER_S = 150e6  # read and written
_TOKENIZING_BYTES = 0.4e9  # memory of each process that tokenises for a GPU
_RANGES_HELD = 2  # the vectors being computed, and a copy being written

SAMPLE_PASSAGES = 200  # number of passages to time an encoder on


@dataclass(frozen=True, slots=True)
class Need:
    """Upper estimate of the resources of one build step."""

    step: str
    disk_bytes: float
    memory_bytes: float
    time_s: float


def store_need(n_passages: int, passage_bytes: float) -> Need:
    """Return the estimate for a store of that many passages of that many bytes."""
    share, array_bytes = _STORE_BYTES
    return Need("passages", n_passages * (share * passage_bytes + array_bytes), 0.5e9, n_passages / _STORE_PASSAGES_PER_S)


def vectors_need(n_passages: int, passage_bytes: float, sample: Sequence[Passage], spec: EncoderSpec, options: EmbedOptions) -> Need:
    """Return the estimate for one encoder's vectors, timed on up to 200 sample passages; time is proportional to bytes of text.

    Raises:
        MissingExtraError: the encoder needs packages that are not installed.
    """
    found = resources(options, spec)
    if found.share is None:
        timed = measured(PassageEncoder(spec, found), sample[:SAMPLE_PASSAGES])
    else:
        from .embedding.cluster.embedding import measured_on_ray

        timed = measured_on_ray(spec, found, sample[:SAMPLE_PASSAGES])
    return need_of(spec.name, found, timed, n_passages, n_passages * passage_bytes)


def need_of(name: str, found: Resources, measured: Measured, n_passages: int, n_bytes: float) -> Need:
    """Return the estimate for an encoder's vectors of that many passages, of that many bytes of text in total, on the current devices."""
    disk_bytes = n_passages * measured.dim * np.dtype(found.precision.stored).itemsize
    range_bytes = RANGE_ROWS * measured.dim * np.dtype(np.float32).itemsize
    a_device = measured.peak_bytes + _RANGES_HELD * range_bytes + found.n_tokenizing * _TOKENIZING_BYTES
    return Need(name, disk_bytes, len(found.devices) * a_device, n_bytes * measured.seconds_per_byte / len(found.devices))


def index_need(ref: IndexRef, n_passages: int, passage_bytes: float) -> Need:
    """Return the estimate for an index of passages, or one built from an encoder's vectors.

    Raises:
        MissingExtraError: a package that the build needs is not installed.
    """
    dim = encoder_spec(ref.name.encoder).dim if ref.name.encoder else 0
    return Need(str(ref.name), *ref.kind.cost(Size(n_passages, dim, passage_bytes)))


def import_need(n_passages: int, spec: EncoderSpec, published: PublishedVectors, options: ImportOptions) -> Need:
    """Return the estimate for importing published vectors, without the download."""
    n_bytes = n_passages * spec.dim * (np.dtype(options.dtype).itemsize if options.dtype else published.stored_bytes)
    return Need(spec.name, n_bytes, 0.5e9 + 100 * n_passages, (n_bytes + published.about_bytes) / _IMPORT_BYTES_PER_S)


def disk_shortage(needs: Sequence[Need], download_bytes: int) -> str | None:
    """Return the message for the user if the data home's disk lacks space for all steps together; None if it suffices."""
    folder = home()
    while not folder.exists():
        folder = folder.parent
    free = disk_usage(folder).free
    needed = download_bytes + sum(need.disk_bytes for need in needs)
    if needed <= free:
        return None
    return f"about {needed / 1e9:.1f} GB are needed under {home()}, {free / 1e9:.1f} GB are free: set IDX_HOME to a larger disk"

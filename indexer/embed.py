"""Store -> vector shards: each a finished ``.npy`` file of ``SHARD_ROWS`` consecutive rows, so that a killed build loses at most one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from corpora.artifacts import Manifest
from corpora.durable import replacing
from corpora.errors import ArtifactDamaged, IdxError
from corpora.progress import Progress
from corpora.registry import load
from corpora.store import PassageStore

from . import ENCODERS
from .base import Encoder, IndexKind, Vectors
from .encoders.transformer import EncoderSpec, TransformerEncoder
from .indexes.exact import ExactIndex

SHARD_ROWS = 16_384

_REPORT_ROWS = 512  # passages between two reports of progress; a whole number of batches


def encoder_spec(name: str) -> EncoderSpec:
    """Return what is known of an encoder.

    Raises:
        UnknownNameError: there is no such encoder.
    """
    spec: EncoderSpec = load("encoder", name, ENCODERS)
    return spec


def vectors_kind(spec: EncoderSpec, device: str = "cpu") -> IndexKind[ExactIndex]:
    """Return how the vectors of one encoder are built and opened for exact search."""

    def write(store: PassageStore, staging: Path, progress: Progress) -> Mapping[str, int]:
        write_shards(store, TransformerEncoder(spec, device), staging, progress)
        return {"rows": len(store), "dim": spec.dim}

    parameters: Mapping[str, str | int] = {
        "encoder": spec.name,
        "weights_sha256": spec.weights_sha256,
        "dtype": "float32",
        "shard_rows": SHARD_ROWS,
    }
    return IndexKind(name="vectors", format_version=1, parameters=parameters, write=write, open=open_shards)


def write_shards(store: PassageStore, encoder: Encoder, staging: Path, progress: Progress) -> None:
    """Encode every passage of the store into shards in ``staging``; finished shards are kept.

    Raises:
        IdxError: the encoder gave a vector that is not finite.
    """
    for first in range(0, len(store), SHARD_ROWS):
        shard = _shard_path(staging, first)
        end = min(first + SHARD_ROWS, len(store))
        if not shard.exists():
            vectors = np.empty((end - first, encoder.dim), dtype=np.float32)
            for start in range(first, end, _REPORT_ROWS):
                stop = min(start + _REPORT_ROWS, end)
                vectors[start - first : stop - first] = encoder.encode_passages(store.get_many(range(start, stop)))
                progress(stop, len(store))
            _write_shard(shard, vectors, first)
        progress(end, len(store))


def open_shards(path: Path, manifest: Manifest) -> ExactIndex:
    """Open the shards for exact search, memory-mapped.

    Raises:
        ArtifactDamaged: they do not hold what their manifest says.
    """
    n_rows, dim = manifest.count("rows"), manifest.count("dim")
    shards = [_map_shard(_shard_path(path, first), (min(SHARD_ROWS, n_rows - first), dim)) for first in range(0, n_rows, SHARD_ROWS)]
    return ExactIndex(shards)


def _shard_path(folder: Path, first_row: int) -> Path:
    return folder / f"shard-{first_row // SHARD_ROWS:05d}.npy"


def _write_shard(path: Path, vectors: Vectors, first_row: int) -> None:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise IdxError(f"the encoder gave a vector that is not finite for row {first_row + int(np.argmin(finite))}: nothing is written")
    with replacing(path) as file:
        np.save(file, vectors)


def _map_shard(path: Path, shape: tuple[int, int]) -> Vectors:
    try:
        shard: Vectors = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({error}): build it again with --force") from error
    if shard.shape != shape or shard.dtype != np.float32:
        raise ArtifactDamaged(f"{path} holds {shard.dtype} {shard.shape} instead of float32 {shape}: build it again with --force")
    return shard

"""Placement of vectors for exact search. It is decided before any vector is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

from wikidx.corpora.errors import MissingExtraError
from wikidx.corpora.progress import format_bytes
from wikidx.indexer.base import Placement
from wikidx.indexer.machine import devices

WORK_BYTES = 3 << 30  # memory on each GPU besides the vectors: scores, candidates, and workspace of the matrix product


class VectorsSize(NamedTuple):
    """Size of the vectors to hold: their number, their dimension, and "float32" or "float16"."""

    n_rows: int
    dim: int
    dtype: str

    @property
    def n_bytes(self) -> int:
        """Bytes of all vectors."""
        return self.n_rows * self.dim * (2 if self.dtype == "float16" else 4)


def choose_placement(size: VectorsSize, device: str, free_bytes: Sequence[int] | None = None) -> Placement:
    """Return the placement of vectors.

    Args:
        size: size of the vectors.
        device: see ``devices.choose_placement``.
        free_bytes: free memory of each GPU; None: ask torch.

    Raises:
        InputError: see ``devices.choose_placement``.
        IdxError: a named GPU has failed.
        MissingExtraError: GPUs are named, and torch is not installed.
    """
    description = f"{format_bytes(size.n_bytes)} of {size.dtype} vectors ({size.n_rows:,} × {size.dim})"
    smaller = (f"build the vectors with --dtype float16 ({size.n_bytes / 2e9:.1f} GB)",) if size.dtype == "float32" else ()
    load = devices.SearchLoad("exact search", description, size.n_bytes, WORK_BYTES, (*smaller, "use an index of kind ivfpq"))
    return devices.choose_placement(load, device, _free_bytes(load, device) if free_bytes is None else free_bytes)


def _free_bytes(load: devices.SearchLoad, device: str) -> list[int]:
    """Return the free memory of the GPUs to choose from. With "auto", torch is imported only if a GPU driver is found."""
    devices.check_devices(device)
    if device in ("cpu", "mps") or (device == "auto" and not devices.has_gpu_driver()):
        return []
    if device != "auto" and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("exact search on a GPU", "gpu")
    return devices.free_memory_of_gpus(load, device, devices.count_gpus())

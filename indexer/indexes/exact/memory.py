"""Memory of an exact search, and the devices of its vectors, which are chosen before any vector is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from wikidx.base.errors import MissingExtraError
from wikidx.base.machine import devices
from wikidx.base.machine.fit import CUDA_BYTES, Demand, Placement
from wikidx.base.progress import format_bytes

WORK_BYTES = 2_106_589_184 + CUDA_BYTES
"""Memory on each GPU besides the vectors, whatever the number of queries and results: a tile of scores, rows found in it, and merges."""


def choose_devices(n_rows: int, dim: int, dtype: str, device: str, free_bytes: Sequence[int] | None = None) -> Placement:
    """Return the placement of vectors.

    Args:
        n_rows: number of vectors.
        dim: components of a vector.
        dtype: "float32" or "float16".
        device: see ``devices.choose_placement``.
        free_bytes: free memory of each GPU; None: ask torch.

    Raises:
        InputError: see ``devices.choose_placement``.
        IdxError: a named GPU has failed.
        MissingExtraError: GPUs are named, and torch is not installed.
    """
    n_bytes = n_rows * dim * (2 if dtype == "float16" else 4)
    description = f"{format_bytes(n_bytes)} of {dtype} vectors ({n_rows:,} × {dim})"
    smaller = (f"build the vectors with --dtype float16 ({n_bytes / 2e9:.1f} GB)",) if dtype == "float32" else ()
    load = devices.SearchLoad("exact search", Demand(description, WORK_BYTES, n_bytes), (*smaller, "use an index of kind ivfpq"))
    return devices.choose_placement(load, device, _free_bytes(device) if free_bytes is None else free_bytes)


def _free_bytes(device: str) -> list[int]:
    """Return the free memory of the GPUs to choose from. With "auto", torch is imported only if a GPU driver is found."""
    devices.check_devices(device)
    if not devices.may_use_gpus(device):
        return []
    if device != "auto" and importlib.util.find_spec("torch") is None:
        raise MissingExtraError("exact search on a GPU", "gpu")
    n_gpus = devices.count_search_gpus()
    devices.resolve_gpus(device, n_gpus)
    return devices.free_memory_of_gpus(device, n_gpus)

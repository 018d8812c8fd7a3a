"""Where vectors are searched exactly: on which device, why, and whether they fit there, told before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.corpora.progress import amount
from wikidx.indexer.base import Placement
from wikidx.indexer.machine.devices import check_devices, free_memory, gpus_of

WORK_BYTES = 3 << 30  # on each GPU beside the vectors: scores, candidates, and what the matrix product takes

_SIGNS_OF_A_GPU = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's driver, that of Windows' Linux, AMD's


class VectorsSize(NamedTuple):
    """What has to be held: the number of vectors, their dimension, and "float32" or "float16"."""

    n_rows: int
    dim: int
    dtype: str

    @property
    def n_bytes(self) -> int:
        """Bytes of all vectors."""
        return self.n_rows * self.dim * (2 if self.dtype == "float16" else 4)


def place(size: VectorsSize, device: str, free_bytes: Sequence[int] | None = None) -> Placement:
    """Return where vectors are searched.

    Args:
        size: of the vectors.
        device: "auto" (GPUs if there are any and the vectors fit, as few as will do; else the CPU), "cpu", "mps" (the CPU as well),
            "cuda", "cuda:1", several as "cuda:0,1", or "all" GPUs.
        free_bytes: memory that is free on each GPU; None asks torch.

    Raises:
        InputError: the device has no such name, is not there, or has too little memory free.
        IdxError: a GPU that is named has failed.
        MissingExtraError: GPUs are named and torch is not installed.
    """
    check_devices(device)
    if device in ("cpu", "mps"):
        told = "the CPU, as was said" if device == "cpu" else "the CPU, whose memory mps shares"
        return Placement(("cpu",), f"exact search on {told}: {_described(size)}, memory-mapped")
    free = _free_bytes(device) if free_bytes is None else free_bytes
    if device == "auto":
        return _wherever_it_fits(size, free)
    numbers = gpus_of(device, len(free))
    if not _fits(size, [free[number] for number in numbers]):
        raise InputError(_refusal(size, numbers, free))
    return _on_gpus(size, numbers, free)


def _wherever_it_fits(size: VectorsSize, free: Sequence[int]) -> Placement:
    """Return the GPUs with most memory free, as few as will do, or the CPU."""
    by_memory = sorted(range(len(free)), key=lambda number: -free[number])
    for n_gpus in range(1, len(free) + 1):
        numbers = sorted(by_memory[:n_gpus])
        if _fits(size, [free[number] for number in numbers]):
            return _on_gpus(size, numbers, free)
    why = f"GPUs would have to hold {_need(size, free)}" if free else "there is no GPU that torch can use"
    return Placement(("cpu",), f"exact search on the CPU, because {why}: {_described(size)}, memory-mapped")


def _on_gpus(size: VectorsSize, numbers: Sequence[int], free: Sequence[int]) -> Placement:
    devices = tuple(f"cuda:{number}" for number in numbers)
    return Placement(devices, f"exact search on {', '.join(devices)}: {_described(size)}, {_listed([free[n] for n in numbers])} GB free")


def _fits(size: VectorsSize, free: Sequence[int]) -> bool:
    return min(free) >= _share(size, len(free)) + WORK_BYTES


def _share(size: VectorsSize, n_gpus: int) -> int:
    """Return the bytes of vectors on each of some GPUs."""
    return math.ceil(size.n_bytes / n_gpus)


def _need(size: VectorsSize, free: Sequence[int]) -> str:
    """Say what GPUs with so much free memory would have to hold."""
    share = _share(size, len(free))
    return (
        f"{share / 1e9:.1f} GB of vectors and {WORK_BYTES / 1e9:.1f} GB to work in each, {(share + WORK_BYTES) / 1e9:.1f} GB, "
        f"where {_listed(free)} GB are free"
    )


def _refusal(size: VectorsSize, numbers: Sequence[int], free: Sequence[int]) -> str:
    """Say why vectors do not fit on GPUs, and what would do."""
    there = [free[number] for number in numbers]
    for_vectors = min(there) - WORK_BYTES
    ways = []
    if for_vectors > 0:
        ways.append(f"name {math.ceil(size.n_bytes / for_vectors)} such GPUs (--device cuda:0,1,…)")
    if size.dtype == "float32":
        ways.append(f"build the vectors with --dtype float16 ({size.n_bytes / 2e9:.1f} GB)")
    ways.append("use an index of kind ivfpq")
    names = ", ".join(f"cuda:{number}" for number in numbers)
    return f"{_described(size)} do not fit on {names}, which would have to hold {_need(size, there)}: {', '.join(ways)}, or --device cpu"


def _listed(n_bytes: Sequence[int]) -> str:
    return " and ".join(f"{n / 1e9:.1f}" for n in n_bytes)


def _described(size: VectorsSize) -> str:
    return f"{amount(size.n_bytes)} of {size.dtype} vectors ({size.n_rows:,} × {size.dim})"


def _free_bytes(device: str) -> list[int]:
    """Return how much memory is free on each GPU that torch can use. With "auto", torch is not imported without a sign of a GPU."""
    if device == "auto" and not any(Path(sign).exists() for sign in _SIGNS_OF_A_GPU):
        return []
    try:
        import torch
    except ImportError as error:
        if device == "auto":
            return []
        raise MissingExtraError("exact search on a GPU", "gpu") from error
    n_gpus = torch.cuda.device_count()
    named = () if device == "auto" else gpus_of(device, n_gpus)
    return [free_memory(number, is_named=number in named) for number in range(n_gpus)]

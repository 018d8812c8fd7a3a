"""Device names: availability, free memory, and placement of data that must fit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from wikidx.corpora.errors import IdxError, InputError
from wikidx.indexer.base import Placement

from .failures import first_line

_DEVICES = re.compile(r"auto|all|cpu|mps|cuda(:\d+(,\d+)*)?")


def check_devices(device: str) -> None:
    """Raise ``InputError`` unless ``device`` names one or several devices in the syntax of ``EmbedOptions``."""
    if not _DEVICES.fullmatch(device):
        raise InputError(f"the device '{device}' is none of auto, cpu, cuda, cuda:<number>, cuda:<number>,<number>, all, mps")


def check_device(device: str) -> None:
    """Raise ``InputError`` unless ``device`` is the name of one device that encoders can run on: auto, cpu, cuda, cuda:<n>, mps."""
    if device == "all" or "," in device or not _DEVICES.fullmatch(device):
        raise InputError(f"the device '{device}' is none of auto, cpu, cuda, cuda:<number>, mps")


def gpu_numbers(device: str, n_gpus: int) -> tuple[int, ...]:
    """Return the GPUs that a device names, each once, whether or not they exist: none for a CPU.

    Args:
        device: see ``check_devices``.
        n_gpus: number of GPUs of the machine; "auto" names the first, if there is one.

    Raises:
        InputError: the device has no such name.
    """
    check_devices(device)
    if device in ("auto", "all"):
        return tuple(range(n_gpus if device == "all" else min(n_gpus, 1)))
    kind, _, numbers = device.partition(":")
    return tuple(dict.fromkeys(map(int, numbers.split(",")))) if numbers else (0,) * (kind == "cuda")


def gpus_of(device: str, n_gpus: int, library: str = "torch", advice: str = "say cpu, or auto") -> tuple[int, ...]:
    """Return the GPUs that a device names, none for a CPU.

    Args:
        device: see ``check_devices``.
        n_gpus: number of available GPUs.
        library: the library that sees them, for the message.
        advice: alternatives if it sees none, for the message.

    Raises:
        InputError: the device has no such name, or names a missing GPU.
    """
    numbers = gpu_numbers(device, n_gpus)
    if not n_gpus and device not in ("auto", "cpu", "mps"):
        raise InputError(f"--device {device}: there is no GPU that {library} can use: {advice}")
    if max(numbers, default=-1) >= n_gpus:
        raise InputError(f"--device {device}: {library} sees {n_gpus} GPU(s), numbered from 0")
    return numbers


def encoder_device(device: str) -> str:
    """Return the device that encodes queries if ``device`` names several; see ``check_devices``."""
    check_devices(device)
    return "cuda" if device == "all" else device.partition(",")[0]


def chosen_device(device: str) -> str:
    """Return a device torch knows; "auto" is the first GPU, else the CPU.

    Raises:
        InputError: torch does not know the device, or it does not exist.
    """
    import torch

    check_device(device)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device '{device}' cannot be used: {first_line(error)}") from error
    return device


def free_memory(number: int, *, is_named: bool) -> int:
    """Return the free bytes of a GPU visible to torch, which must be installed; 0 for a failing GPU that was not named.

    Raises:
        IdxError: it fails, and was named.
    """
    import torch

    try:
        return torch.cuda.mem_get_info(number)[0]
    except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        if not is_named:
            return 0
        raise IdxError(f"cuda:{number} does not say what memory is free ({first_line(error)}): name another, or --device cpu") from error


def n_gpus_seen() -> int:
    """Return the number of GPUs that torch can use; 0 without torch."""
    try:
        import torch
    except ImportError:  # reported when the model is loaded
        return 0
    return torch.cuda.device_count()


class Load(NamedTuple):
    """Vectors, or an index of them, to be searched on a CPU, or on GPUs that share them.

    Attributes:
        searcher: the library that searches them, for messages.
        description: their kind and size, for messages.
        n_bytes: of all.
        work_bytes: further memory on each GPU.
        advice: alternatives if they do not fit.
        library: the library that sees the GPUs, for messages.
        without_gpus: alternatives if it sees none.
    """

    searcher: str
    description: str
    n_bytes: float
    work_bytes: float
    advice: tuple[str, ...] = ()
    library: str = "torch"
    without_gpus: str = "say cpu, or auto"

    def fits(self, free: Sequence[int]) -> bool:
        """Return whether GPUs with this much free memory each can share it."""
        return bool(free) and min(free) >= math.ceil(self.n_bytes / len(free)) + self.work_bytes

    def need(self, free: Sequence[int]) -> str:
        """Return the memory that GPUs with this much free memory each would need, as text."""
        share = math.ceil(self.n_bytes / len(free))
        whole, parts = share + self.work_bytes, f"{share / 1e9:.1f} GB of vectors and {self.work_bytes / 1e9:.1f} GB to work in each"
        return f"{parts}, {whole / 1e9:.1f} GB, where {_listed(free)} GB are free"


def place(load: Load, device: str, free: Sequence[int]) -> Placement:
    """Return the placement of a load.

    Args:
        load: its size, and words for messages.
        device: "auto" (the smallest number of GPUs that fit it, if any; else the CPU), "cpu", "mps" (the CPU as well), "cuda",
            "cuda:1", several as "cuda:0,1", or "all" GPUs.
        free: free memory of each GPU.

    Raises:
        InputError: the device has no such name, does not exist, or has too little memory free.
    """
    numbers = gpus_of(device, len(free), load.library, load.without_gpus)
    why = {"cpu": "the CPU, as was said", "mps": "the CPU, whose memory mps shares"}.get(device)
    if device == "auto":
        by_memory = sorted(range(len(free)), key=lambda number: -free[number])
        choices = (by_memory[:n_gpus] for n_gpus in range(1, len(free) + 1))
        numbers = tuple(sorted(next((some for some in choices if load.fits([free[number] for number in some])), ())))
        no_room = f"GPUs would have to hold {load.need(free)}" if free else f"there is no GPU that {load.library} can use"
        why = None if numbers else f"the CPU, because {no_room}"
    if why:
        return Placement(("cpu",), f"{load.searcher} on {why}: {load.description}")
    names, there = tuple(f"cuda:{number}" for number in numbers), [free[number] for number in numbers]
    if load.fits(there):
        return Placement(names, f"{load.searcher} on {', '.join(names)}: {load.description}, {_listed(there)} GB free")
    room = min(there) - load.work_bytes
    ways = (f"name {math.ceil(load.n_bytes / room)} such GPUs (--device cuda:0,1,…)",) if room > 0 else ()
    raise InputError(
        f"{load.description} do not fit on {', '.join(names)}, which would have to hold {load.need(there)}: "
        f"{', '.join([*ways, *load.advice])}, or --device cpu"
    )


def free_on_gpus(device: str, n_gpus: int, library: str = "torch", advice: str = "say cpu, or auto") -> list[int]:
    """Return the free memory of each GPU, see ``free_memory``; ``device`` decides which are named, see ``gpus_of``."""
    named = () if device == "auto" else gpus_of(device, n_gpus, library, advice)
    return [free_memory(number, is_named=number in named) for number in range(n_gpus)]


def _listed(n_bytes: Sequence[int]) -> str:
    return " and ".join(f"{n / 1e9:.1f}" for n in n_bytes)

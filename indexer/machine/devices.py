"""Devices by name: availability, free memory, and placement of vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.errors import IdxError, InputError
from wikidx.indexer.base import Placement

from .failures import first_line

_SIGNS_OF_A_GPU = ("/dev/nvidiactl", "/dev/dxg")  # drivers of NVIDIA and WSL
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
    """Return the numbers of the GPUs that ``device`` names, without duplicates; none for a CPU. The GPUs need not exist.

    Args:
        device: see ``check_devices``.
        n_gpus: number of GPUs of the machine; "auto" names the first GPU, if any.

    Raises:
        InputError: the device name is unknown.
    """
    check_devices(device)
    if device in ("auto", "all"):
        return tuple(range(n_gpus if device == "all" else min(n_gpus, 1)))
    kind, _, numbers = device.partition(":")
    return tuple(dict.fromkeys(map(int, numbers.split(",")))) if numbers else (0,) * (kind == "cuda")


def resolve_gpus(device: str, n_gpus: int, library: str = "torch", advice: str = "use cpu, or auto") -> tuple[int, ...]:
    """Return the numbers of the GPUs that ``device`` names; none for a CPU.

    Args:
        device: see ``check_devices``.
        n_gpus: number of available GPUs.
        library: the library that uses the GPUs, for the message.
        advice: alternatives without a GPU, for the message.

    Raises:
        InputError: the device name is unknown, or names a missing GPU.
    """
    numbers = gpu_numbers(device, n_gpus)
    if not n_gpus and device not in ("auto", "cpu", "mps"):
        raise InputError(f"--device {device}: there is no GPU that {library} can use: {advice}")
    if max(numbers, default=-1) >= n_gpus:
        raise InputError(f"--device {device}: {library} sees {n_gpus} GPU(s), numbered from 0")
    return numbers


def encoder_device(device: str) -> str:
    """Return the device that encodes queries: the first of those that ``device`` names; see ``check_devices``."""
    check_devices(device)
    return "cuda" if device == "all" else device.partition(",")[0]


def choose_kernels() -> None:
    """Make torch choose, for all GPUs, kernels whose results can be relied on.

    cuDNN's attention, which torch prefers on Hopper and Blackwell from 2.11 on, makes a plan for each new shape (25 to 440 ms) and garbles
    batches with padding of some models (pytorch#193893). TF32, which NVIDIA's containers switch on, multiplies with 10 bits.
    """
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_float32_matmul_precision("highest")


def resolve_device(device: str) -> str:
    """Return the name of an existing torch device, after ``choose_kernels``; "auto" is the first GPU, else the CPU.

    Raises:
        InputError: torch does not know the device, or the device does not exist.
    """
    import torch

    check_device(device)
    choose_kernels()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        raise InputError(f"the device '{device}' cannot be used: {first_line(error)}") from error
    return device


def free_memory(number: int, *, is_named: bool) -> int:
    """Return the free bytes of a GPU, with those that torch keeps unused. A GPU that fails has 0 free bytes, unless the user named it.

    Raises:
        IdxError: a named GPU fails.
    """
    import torch

    try:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(number)[0]
    except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        if not is_named:
            return 0
        raise IdxError(f"cuda:{number} does not report its free memory ({first_line(error)}): name another, or --device cpu") from error


def count_gpus() -> int:
    """Return the number of NVIDIA's GPUs that torch can use; 0 without torch. On those of others a product lacks that search needs."""
    try:
        import torch
    except ImportError:  # loading the model reports the error
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() and torch.version.hip is None else 0  # the driver may be broken


def has_gpu_driver() -> bool:
    """Return whether a driver of NVIDIA or WSL is there, without importing torch."""
    return any(Path(sign).exists() for sign in _SIGNS_OF_A_GPU)


class SearchLoad(NamedTuple):
    """Vectors, or an index of vectors, to be placed on a CPU or divided among GPUs.

    Attributes:
        searcher: the search library, for messages.
        description: kind and size of the vectors, for messages.
        n_bytes: total size of the vectors.
        work_bytes: working memory on each GPU.
        advice: alternatives if the vectors do not fit, for messages.
        library: the library that uses the GPUs, for messages.
        without_gpus: alternatives without a GPU, for messages.
    """

    searcher: str
    description: str
    n_bytes: float
    work_bytes: float
    advice: tuple[str, ...] = ()
    library: str = "torch"
    without_gpus: str = "use cpu, or auto"

    def fits(self, free: Sequence[int]) -> bool:
        """Return whether the vectors fit on GPUs with the given free memory, divided equally."""
        return bool(free) and min(free) >= math.ceil(self.n_bytes / len(free)) + self.work_bytes

    def describe_memory(self, free: Sequence[int]) -> str:
        """Return a text with the memory needed on each GPU, and the given free memory."""
        bytes_per_gpu = math.ceil(self.n_bytes / len(free))
        total, parts = (
            bytes_per_gpu + self.work_bytes,
            f"{bytes_per_gpu / 1e9:.1f} GB of vectors and {self.work_bytes / 1e9:.1f} GB to work in each",
        )
        return f"{parts}, {total / 1e9:.1f} GB, where {_format_sizes(free)} GB are free"


def choose_placement(load: SearchLoad, device: str, free: Sequence[int]) -> Placement:
    """Return the placement of a load.

    Args:
        load: size of the load, and texts for messages.
        device: "auto" (the fewest of these GPUs on which the load fits, else the CPU), "cpu", "mps" (means the CPU), "cuda", "cuda:1",
            several GPUs as "cuda:0,1", or "all" GPUs.
        free: free memory of each GPU.

    Raises:
        InputError: the device name is unknown, or the device does not exist or has too little free memory.
    """
    numbers = resolve_gpus(device, len(free), load.library, load.without_gpus)
    reason = {"cpu": "the CPU, as requested", "mps": "the CPU, whose memory mps shares"}.get(device)
    if device == "auto":
        by_memory = sorted(range(len(free)), key=lambda number: -free[number])
        choices = (by_memory[:n_gpus] for n_gpus in range(1, len(free) + 1))
        numbers = tuple(sorted(next((choice for choice in choices if load.fits([free[number] for number in choice])), ())))
        obstacle = f"GPUs would have to hold {load.describe_memory(free)}" if free else f"there is no GPU that {load.library} can use"
        reason = None if numbers else f"the CPU, because {obstacle}"
    if reason:
        return Placement(("cpu",), f"{load.searcher} on {reason}: {load.description}")
    names, available = tuple(f"cuda:{number}" for number in numbers), [free[number] for number in numbers]
    if load.fits(available):
        return Placement(names, f"{load.searcher} on {', '.join(names)}: {load.description}, {_format_sizes(available)} GB free")
    room = min(available) - load.work_bytes
    remedies = (f"name {math.ceil(load.n_bytes / room)} such GPUs (--device cuda:0,1,…)",) if room > 0 else ()
    raise InputError(
        f"{load.description} do not fit on {', '.join(names)}, which would have to hold {load.describe_memory(available)}: "
        f"{', '.join([*remedies, *load.advice])}, or --device cpu"
    )


def free_memory_of_gpus(load: SearchLoad, device: str, n_gpus: int) -> list[int]:
    """Return the free memory of each GPU that ``device`` names, which must not fail, and 0 of the others.

    A GPU that is asked has some hundred MB less until the process ends. For "auto", GPUs are asked up to the first on which the load fits.
    """
    named, free = resolve_gpus(device, n_gpus, load.library, load.without_gpus), list[int]()
    if device != "auto":
        return [free_memory(number, is_named=True) if number in named else 0 for number in range(n_gpus)]
    while len(free) < n_gpus and not load.fits(free[-1:]):
        free.append(free_memory(len(free), is_named=False))
    return free


def _format_sizes(n_bytes: Sequence[int]) -> str:
    return " and ".join(f"{n / 1e9:.1f}" for n in n_bytes)

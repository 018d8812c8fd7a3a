"""Names of devices: which of them are there, and how much of their memory is free."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from wikidx.corpora.errors import IdxError, InputError

from .failures import first_line

if TYPE_CHECKING:
    pass


_DEVICES = re.compile(r"auto|all|cpu|mps|cuda(:\d+(,\d+)*)?")


def check_devices(device: str) -> None:
    """Raise ``InputError`` unless ``device`` names one or several devices as ``EmbedOptions`` says."""
    if not _DEVICES.fullmatch(device):
        raise InputError(f"the device '{device}' is none of auto, cpu, cuda, cuda:<number>, cuda:<number>,<number>, all, mps")


def check_device(device: str) -> None:
    """Raise ``InputError`` unless ``device`` is the name of one device that encoders can run on: auto, cpu, cuda, cuda:<n>, mps."""
    if device == "all" or "," in device or not _DEVICES.fullmatch(device):
        raise InputError(f"the device '{device}' is none of auto, cpu, cuda, cuda:<number>, mps")


def gpu_numbers(device: str, n_gpus: int) -> tuple[int, ...]:
    """Return the GPUs that a device names, each once, whether or not there are so many: none for a CPU.

    Args:
        device: see ``check_devices``.
        n_gpus: how many there are; "auto" names the first, if there is one.

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
        n_gpus: how many there are.
        library: that sees them, for the message.
        advice: what else can be done where it sees none.

    Raises:
        InputError: the device has no such name, or names a GPU that is not there.
    """
    numbers = gpu_numbers(device, n_gpus)
    if not n_gpus and device not in ("auto", "cpu", "mps"):
        raise InputError(f"--device {device}: there is no GPU that {library} can use: {advice}")
    if max(numbers, default=-1) >= n_gpus:
        raise InputError(f"--device {device}: {library} sees {n_gpus} GPU(s), numbered from 0")
    return numbers


def encoder_device(device: str) -> str:
    """Return the one device that encodes queries where ``device`` names several; see ``check_devices``."""
    check_devices(device)
    return "cuda" if device == "all" else device.partition(",")[0]


def chosen_device(device: str) -> str:
    """Return a device torch knows; "auto" is the first GPU, else the CPU.

    Raises:
        InputError: torch does not know the device, or it is not there.
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
    """Return how many bytes are free on a GPU that torch, which must be installed, sees; 0 on one that fails and that nobody named.

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
    """Return how many GPUs torch can use; 0 without torch."""
    try:
        import torch
    except ImportError:  # said when the model is loaded
        return 0
    return torch.cuda.device_count()

"""Devices by name: availability, free memory, and the choice among them by ``fit``."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wikidx.base.errors import IdxError, InputError
from wikidx.base.progress import format_bytes

from .failures import first_line
from .fit import Demand, Placement, fit

_SIGNS_OF_A_GPU = ("/dev/nvidiactl", "/dev/dxg")  # drivers of NVIDIA and WSL
_ASKING_S = 120.0  # for another process to import torch and ask the GPUs; a sick GPU may hang
_SEARCH_BYTES = 3_200_000_000  # that a network leaves free on a GPU: for the searches beside it
_DEVICES = re.compile(r"auto|all|cpu|mps|cuda(:\d+(,\d+)*)?")

logger = logging.getLogger(__name__)


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


def resolve_device(device: str, demand: Demand | None = None) -> str:
    """Return the name of an existing torch device, after ``choose_kernels``.

    Args:
        device: "auto" is the emptiest GPU that has room, also for searches beside the network, else the CPU.
        demand: memory of the network for the device; None: unknown.

    Raises:
        InputError: torch does not know the device, or the device does not exist or has too little free memory.
        IdxError: a named GPU does not report its free memory.
    """
    import torch

    check_device(device)
    choose_kernels()
    if device == "auto":
        return _choose_gpu(demand or Demand("a network", 0))
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        raise InputError(f"the device '{device}' cannot be used: {first_line(error)}") from error
    if demand is not None and device.startswith("cuda"):
        _check_room(demand, *gpu_numbers(device, 0))
    return device


def _choose_gpu(demand: Demand) -> str:
    """Return the emptiest GPU with room for a network, or the CPU."""
    n_gpus = count_gpus()
    if n_gpus == 1 and not demand.n_bytes:
        return "cuda:0"
    free = free_memory_of_gpus("auto", n_gpus)
    needed = demand._replace(n_bytes=demand.n_bytes and demand.n_bytes + _SEARCH_BYTES)
    chosen = fit(needed, dict(enumerate(free)))
    if free and not chosen:
        room = f"{format_bytes(needed.n_bytes)} of a GPU with the searches beside it, and {_format_sizes(free)} GB are free"
        logger.warning("%s is on the CPU: it would take %s (--device names a GPU)", demand.name, room)
    return f"cuda:{chosen[0]}" if chosen else "cpu"


def _check_room(demand: Demand, number: int) -> None:
    """Raise ``InputError`` if a network does not fit on a named GPU."""
    free = free_memory(number, is_named=True)
    if not fit(demand, {number: free}):
        sizes = f"it takes {format_bytes(demand.n_bytes)}, and {format_bytes(free)} are free"
        raise InputError(f"{demand.name} does not fit on cuda:{number}: {sizes}: name another GPU, or --device cpu")


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


def free_memory_of_gpus(device: str, n_gpus: int) -> list[int]:
    """Return the free memory of each GPU that ``device`` names, which must not fail, and 0 of the others; for "auto", of all.

    A GPU that is asked has some hundred MB less until the process ends. Several are therefore asked by a process that ends at once.

    Raises:
        IdxError: a named GPU fails.
    """
    if device != "auto":
        named = gpu_numbers(device, n_gpus)
        return [free_memory(number, is_named=True) if number in named else 0 for number in range(n_gpus)]
    return [free_memory(0, is_named=False)] if n_gpus == 1 else ask_all_gpus() if n_gpus else []


def ask_all_gpus() -> list[int]:
    """Return the free bytes of each GPU, asked by another process, so that this one uses none; none if that process fails."""
    if "torch" in sys.modules and (cuda := sys.modules["torch"].cuda).is_initialized():
        cuda.empty_cache()
    command = [sys.executable, "-c", f"from {__name__} import print_free_memory as p; p()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING_S, check=True)
        return [int(n_bytes) for n_bytes in done.stdout.split()]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("the GPUs' free memory cannot be read (%s)", first_line(error))
        return []


def print_free_memory() -> None:
    """Print the free bytes of each GPU on one line; the main function of ``ask_all_gpus``."""
    sys.stdout.write(" ".join(str(free_memory(number, is_named=False)) for number in range(count_gpus())))


def count_gpus() -> int:
    """Return the number of GPUs, of NVIDIA or AMD, that torch can use; 0 without torch."""
    try:
        import torch
    except ImportError:  # loading the model reports the error
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0  # the driver may be broken


def count_search_gpus() -> int:
    """Return the number of GPUs that can search: those of NVIDIA. On AMD's, torch lacks a product that search needs."""
    n_gpus = count_gpus()
    return n_gpus if n_gpus and sys.modules["torch"].version.hip is None else 0


def has_gpu_driver() -> bool:
    """Return whether a driver of NVIDIA or WSL is there, without importing torch."""
    return any(Path(sign).exists() for sign in _SIGNS_OF_A_GPU)


def may_use_gpus(device: str) -> bool:
    """Return whether a search on the device may be on a GPU, without importing torch."""
    return device not in ("cpu", "mps") and (device != "auto" or has_gpu_driver())


class SearchLoad(NamedTuple):
    """Vectors, or an index of vectors, to be placed on a CPU or divided among GPUs.

    Attributes:
        searcher: the search library, for messages.
        vectors: memory of the vectors; its name is their kind and size.
        advice: alternatives if the vectors do not fit, for messages.
        library: the library that uses the GPUs, for messages.
        without_gpus: alternatives without a GPU, for messages.
    """

    searcher: str
    vectors: Demand
    advice: tuple[str, ...] = ()
    library: str = "torch"
    without_gpus: str = "use cpu, or auto"

    def describe_memory(self, free: Sequence[int]) -> str:
        """Return a text with the memory needed on each GPU, and the given free memory."""
        _, work_bytes, n_bytes = self.vectors
        parts = f"{math.ceil(n_bytes / len(free)) / 1e9:.1f} GB of vectors and {work_bytes / 1e9:.1f} GB to work in each"
        return f"{parts}, {self.vectors.on_each(len(free)) / 1e9:.1f} GB, where {_format_sizes(free)} GB are free"


def choose_placement(load: SearchLoad, device: str, free: Sequence[int]) -> Placement:
    """Return the placement of a load.

    Args:
        load: size of the load, and texts for messages.
        device: "auto" (the fewest of these GPUs on which the load fits, the emptiest first, else the CPU), "cpu", "mps" (means the CPU),
            "cuda", "cuda:1", several GPUs as "cuda:0,1", or "all" GPUs.
        free: free memory of each GPU.

    Raises:
        InputError: the device name is unknown, or the device does not exist or has too little free memory.
    """
    numbers = resolve_gpus(device, len(free), load.library, load.without_gpus)
    size = load.vectors.name
    if reason := {"cpu": "the CPU, as requested", "mps": "the CPU, whose memory mps shares"}.get(device):
        return Placement(("cpu",), f"{load.searcher} on {reason}: {size}")
    is_auto = device == "auto"
    if chosen := fit(load.vectors, {number: free[number] for number in (range(len(free)) if is_auto else numbers)}, on_all=not is_auto):
        names, room = tuple(f"cuda:{number}" for number in chosen), _format_sizes([free[number] for number in chosen])
        return Placement(names, f"{load.searcher} on {', '.join(names)}: {size}, {room} GB free")
    if is_auto:
        obstacle = f"GPUs would have to hold {load.describe_memory(free)}" if free else f"there is no GPU that {load.library} can use"
        return Placement(("cpu",), f"{load.searcher} on the CPU, because {obstacle}: {size}")
    available = [free[number] for number in numbers]
    room_left = min(available) - load.vectors.n_bytes
    remedies = (f"name {math.ceil(load.vectors.divided_bytes / room_left)} such GPUs (--device cuda:0,1,…)",) if room_left > 0 else ()
    raise InputError(
        f"{size} do not fit on {', '.join(f'cuda:{number}' for number in numbers)}, which would have to hold "
        f"{load.describe_memory(available)}: {', '.join([*remedies, *load.advice])}, or --device cpu"
    )


def _format_sizes(n_bytes: Sequence[int]) -> str:
    return " and ".join(f"{n / 1e9:.1f}" for n in n_bytes)

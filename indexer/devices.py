"""Names of devices, and the devices, precision and batches that ``--device``, ``--dtype``, ``--batch-tokens`` and ``--ray-cpus`` mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from corpora.errors import IdxError, InputError

from .base import n_threads
from .encoders.failures import first_line
from .encoders.spec import Dtype, EncoderSpec

if TYPE_CHECKING:
    from .base import Stored

DTYPES = ("float32", "float16", "bfloat16")

_DEVICES = re.compile(r"auto|all|cpu|mps|cuda(:\d+(,\d+)*)?")
_MAX_TOKENIZING = 12  # processes beside one GPU
_CPU_BATCH_TOKENS = 1_024  # what stays in the caches
_GPU_BATCH_TOKENS = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How passages are embedded on the Ray cluster that this process is connected to (``cluster.nodes.connected``).

    Attributes:
        cpus: processors of each encoder where there are no GPUs; None: all that the smallest node has.
        exchange: URL of a folder that all nodes reach, as fsspec has it; None: they share the data home.
    """

    cpus: int | None = None
    exchange: str | None = None

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 1:
            raise InputError(f"--ray-cpus {self.cpus}: an encoder needs at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """How a user wants passages embedded.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "mps", "cuda", "cuda:1", several as "cuda:0,1", or "all" GPUs.
        dtype: what is stored, and with it what is computed. "float32": both. "float16" is stored; computed is float32 on a CPU and on a GPU
            what the encoder is safe in (``EncoderSpec.gpu_dtype``: bfloat16 for GTR, float16 for the others). "bfloat16" is computed on
            either, and stored as float16. None: "float32" on a CPU, "float16" on a GPU.
        batch_tokens: tokens of a batch, padding included; None: what suits the device.
        cluster: on a Ray cluster, whose GPUs "auto" and "cuda" then mean; None: on this machine.
    """

    device: str = "auto"
    dtype: str | None = None
    batch_tokens: int | None = None
    cluster: ClusterOptions | None = None

    def __post_init__(self) -> None:
        check_devices(self.device)
        if self.cluster is not None and self.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--device {self.device} with --ray: say auto, cpu or cuda; which GPU an encoder gets Ray decides")
        if self.dtype not in (None, *DTYPES):
            raise InputError(f"--dtype {self.dtype}: say one of {', '.join(DTYPES)}")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise InputError(f"--batch-tokens {self.batch_tokens}: at least one token is needed")


class Precision(NamedTuple):
    """The numbers of the forward pass (pooling is always in float32) and those of the stored vectors."""

    computed: Dtype
    stored: Stored


class Share(NamedTuple):
    """What each encoder on a Ray cluster has, and how files come and go there; see ``ClusterOptions``."""

    n_cpus: int
    n_gpus: int
    exchange: str | None


class Resources(NamedTuple):
    """What ``EmbedOptions`` come to on this machine, or on a Ray cluster.

    Attributes:
        devices: torch's names; a process for each if there are several. On a cluster the one name that each encoder has for its own.
        precision: of the numbers.
        batch_tokens: tokens of a batch, padding included.
        n_tokenizing: processes that tokenise for each device; on a CPU none, because the model has use for every core.
        share: of each encoder on a cluster; None: on this machine.
    """

    devices: tuple[str, ...]
    precision: Precision
    batch_tokens: int
    n_tokenizing: int
    share: Share | None = None


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


def resources(options: EmbedOptions, spec: EncoderSpec) -> Resources:
    """Return what the options come to on this machine, or on the cluster that it is connected to.

    Raises:
        InputError: "all" GPUs, or more processors, are named than there are.
        MissingExtraError: a cluster is named, and Ray is not installed.
    """
    share, n_encoders = None, 0
    if options.cluster is not None:
        share, n_encoders = _share(options.cluster, options.device)
    devices = _devices(options.device) if share is None else ("cuda" if share.n_gpus else "cpu",) * n_encoders
    on_gpu = devices[0] != "cpu"
    batch_tokens = options.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)
    n_processors = n_threads() // len(devices) if share is None else share.n_cpus
    n_tokenizing = max(1, min(_MAX_TOKENIZING, n_processors - 1)) if on_gpu else 0
    return Resources(devices, _precision(options.dtype, spec, on_gpu=on_gpu), batch_tokens, n_tokenizing, share)


def _share(options: ClusterOptions, device: str) -> tuple[Share, int]:
    """Return what each encoder gets on the cluster, and how many find room on its nodes."""
    from .cluster.nodes import nodes

    found = nodes()
    with_gpus = [node for node in found if node.n_gpus >= 1]
    if device == "cuda" and not with_gpus:
        raise InputError(f"--device cuda: none of the {len(found)} nodes of the Ray cluster has a GPU: say cpu, or auto")
    if with_gpus and device != "cpu":
        n_cpus = min(int(node.n_cpus // node.n_gpus) for node in with_gpus)
        return Share(n_cpus, 1, options.exchange), sum(int(node.n_gpus) for node in with_gpus)
    sizes = [int(node.n_cpus) for node in found if node.n_cpus >= 1]
    if not sizes:
        raise InputError(f"none of the {len(found)} nodes of the Ray cluster offers a processor: start one with 'ray start --num-cpus'")
    n_cpus = options.cpus or min(sizes)
    n_encoders = sum(size // n_cpus for size in sizes)
    if not n_encoders:
        raise InputError(f"--ray-cpus {n_cpus}: the largest node of the Ray cluster has {max(sizes)}")
    return Share(n_cpus, 0, options.exchange), n_encoders


def _devices(device: str) -> tuple[str, ...]:
    if device in ("cpu", "mps", "cuda"):  # which of the GPUs "cuda" is torch decides
        return (device,)
    numbers = gpus_of(device, _n_gpus()) if device in ("auto", "all") else gpu_numbers(device, 0)
    return tuple(f"cuda:{number}" for number in numbers) or ("cpu",)


def _precision(dtype: str | None, spec: EncoderSpec, *, on_gpu: bool) -> Precision:
    if dtype == "float32" or (dtype is None and not on_gpu):
        return Precision("float32", "float32")
    if dtype == "bfloat16":
        return Precision("bfloat16", "float16")
    return Precision(spec.gpu_dtype if on_gpu else "float32", "float16")


def _n_gpus() -> int:
    try:
        import torch
    except ImportError:  # said when the model is loaded
        return 0
    return torch.cuda.device_count()

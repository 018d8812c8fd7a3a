"""Options of embedding (``EmbedOptions``), and the devices, precision and batch size that they select (``Resources``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

from wikidx.base.errors import InputError
from wikidx.base.machine.devices import check_devices
from wikidx.indexer.base import Stored
from wikidx.indexer.networks.network_size import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """Options of embedding.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "mps", "cuda", "cuda:1", several as "cuda:0,1", or "all" GPUs.
        dtype: precision. "float32": compute and store in float32. "float16": store in float16, compute in float32 on a CPU and in
            ``EncoderSpec.gpu_dtype`` on a GPU. "bfloat16": compute in bfloat16, store in float16. None: "float32" on a CPU, "float16" on
            a GPU.
        batch_tokens: maximum tokens of a batch, padding included; None: the device's default.
        on_ray: embed on the connected Ray cluster (``base.cluster.connect``). "cuda" then means all its GPUs; "auto" means all its
            GPUs, or its CPUs if it has none.
        ray_cpus: CPUs of each encoder on a cluster without GPUs; None: all CPUs of the smallest node.
    """

    device: str = "auto"
    dtype: str | None = None
    batch_tokens: int | None = None
    on_ray: bool = False
    ray_cpus: int | None = None

    def __post_init__(self) -> None:
        check_devices(self.device)
        if self.on_ray and self.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--device {self.device} with --ray: use auto, cpu or cuda; Ray assigns the GPUs")
        if self.ray_cpus is not None and not self.on_ray:
            raise InputError(f"--ray-cpus {self.ray_cpus} is for work on a Ray cluster: add --ray")
        if self.ray_cpus is not None and self.ray_cpus < 1:
            raise InputError(f"--ray-cpus {self.ray_cpus}: an encoder needs at least one")
        if self.dtype not in (None, *get_args(Dtype)):
            raise InputError(f"--dtype {self.dtype}: use one of {', '.join(get_args(Dtype))}")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise InputError(f"--batch-tokens {self.batch_tokens}: at least one token is needed")


class Precision(NamedTuple):
    """Precision of the forward pass (pooling is always in float32) and of the stored vectors."""

    computed: Dtype
    stored: Stored


class RayResources(NamedTuple):
    """CPUs and GPUs of each encoder on a Ray cluster; see ``EmbedOptions``."""

    n_cpus: int
    n_gpus: int


class Resources(NamedTuple):
    """``EmbedOptions`` resolved on this machine, or on a Ray cluster.

    Attributes:
        devices: torch's names of the devices; each has one process. On a cluster: one name per encoder, local to its node.
        precision: precision of storage and computation.
        batch_tokens: maximum tokens of a batch, padding included.
        n_tokenizing: tokenising processes for each device; 0 on a CPU, where the model uses every core.
        ray: resources of each encoder on a cluster; None for this machine.
    """

    devices: tuple[str, ...]
    precision: Precision
    batch_tokens: int
    n_tokenizing: int
    ray: RayResources | None = None

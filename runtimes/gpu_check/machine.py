"""Facts about the machine, and its ceilings: bandwidth of memory, and rate of matrix products."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.machine.devices import choose_kernels, count_gpus
from wikidx.base.machine.memory import memory_bytes
from wikidx.base.machine.threads import n_threads
from wikidx.base.progress import format_bytes

from .task import Task

if TYPE_CHECKING:
    import torch

_PACKAGES = ("wikidx", "torch", "transformers", "tokenizers", "triton", "faiss-gpu", "faiss-cpu", "numpy")
_ASKED = "driver_version,power.limit,ecc.mode.current,mig.mode.current"
_PAGE_ROWS = 1 << 20
_GPU_SIZES, _CPU_SIZES = (2 << 30, 8192), (64 << 20, 512)  # bytes that are copied, and rows of the matrices
_SIGNS = ("CUDA", "CUDNN", "TF32", "CUBLAS", "OMP_NUM", "MKL_NUM")
_CONTAINERS = ("NV_", "NVIDIA_REQUIRE_")  # versions of packages, and lists of drivers, in NVIDIA's containers: kilobytes


def find_gpu(task: Task) -> None:
    """Record the device to check: the first GPU that torch can use, else the CPU. A broken driver may end this process."""
    task.record("device", {"device": "cuda:0" if count_gpus() else "cpu"})


def describe_machine(task: Task) -> None:
    """Record the facts of a report on a GPU, and measure the ceilings."""
    import torch

    task.record(
        "system",
        {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cores": n_threads(),
            "memory": format_bytes(memory_bytes()),
        },
    )
    task.record("versions", _versions() | {"commit": _commit() or "no checkout"})
    task.record("environment", _environment())
    before = _kernels()
    choose_kernels()
    task.record("kernels", {"torch has": before, "idx leaves": _kernels()})
    for number in range(count_gpus()):
        card = torch.cuda.get_device_properties(number)
        task.record(
            f"cuda:{number}", {"card": card.name, "memory": format_bytes(card.total_memory), "capability": f"{card.major}.{card.minor}"}
        )
    if task.on_gpu:
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        task.record("driver", {"CUDA": str(torch.version.cuda), "cuDNN": str(cudnn)} | _ask_driver())
    measure_ceilings(task)


def measure_ceilings(task: Task) -> tuple[float, float]:
    """Record and return the bytes per second read and written by a copy, and the rate of products, in operations per second.

    The products are of float16 matrices with float32 results, as in search; on a CPU of float32 ones.
    """
    (n_bytes, side), rounds = (_GPU_SIZES if task.on_gpu else _CPU_SIZES), 10
    bandwidth = 2 * n_bytes / _copy_seconds(task, n_bytes, rounds)
    left, right = fill_random(task.device, side, side), fill_random(task.device, side, side)
    rate = 2 * side**3 / median_seconds(task, lambda: half_product(left, right), rounds)
    task.record("ceilings", {"copy GB/s": bandwidth / 1e9, "products TFLOP/s": rate / 1e12})
    return bandwidth, rate


def _copy_seconds(task: Task, n_bytes: int, rounds: int) -> float:
    import torch

    source, target = (torch.zeros(n_bytes, dtype=torch.uint8, device=task.device) for _ in range(2))
    return median_seconds(task, lambda: target.copy_(source), rounds)


def fill_random(device: str, n_rows: int, dim: int) -> torch.Tensor:
    """Return random vectors of length about 1, float16, made on the device."""
    import torch

    vectors = torch.empty((n_rows, dim), dtype=torch.float16, device=device)
    for start in range(0, n_rows, _PAGE_ROWS):
        vectors[start : start + _PAGE_ROWS].normal_(std=dim**-0.5)
    return vectors


def half_product(left: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the inner products of float16 rows, float32; on a CPU computed in float32, as exact search does."""
    import torch

    return torch.mm(left, rows.T, out_dtype=torch.float32) if rows.is_cuda else left.float() @ rows.float().T


def median_seconds(task: Task, work: Callable[[], object], rounds: int) -> float:
    """Return the median duration of a call on the device, after a first call that is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        wait_for(task.device)
        started = time.perf_counter()
        work()
        wait_for(task.device)
        seconds.append(time.perf_counter() - started)
        if not task.has_time:
            break
    return statistics.median(seconds[1:] or seconds)


def wait_for(device: str) -> None:
    """Wait until a GPU has done all that it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _environment() -> dict[str, str]:
    """Return the environment variables that may change what a GPU computes."""
    chosen = {name: value for name, value in sorted(os.environ.items()) if any(sign in name for sign in _SIGNS)}
    return {name: value for name, value in chosen.items() if not name.startswith(_CONTAINERS)}


def _commit() -> str:
    """Return the commit of a checkout; "" elsewhere."""
    return _run("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*")


def _kernels() -> str:
    """Return the attention that torch may choose, and whether TF32 is on."""
    import torch

    cuda: Any = torch.backends.cuda
    enabled = {
        "cudnn": cuda.cudnn_sdp_enabled(),
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return f"attention {', '.join(name for name, is_on in enabled.items() if is_on)}; TF32 {'on' if cuda.matmul.allow_tf32 else 'off'}"


def _ask_driver() -> dict[str, str]:
    answer = _run("nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader").splitlines()
    return (
        dict(zip(("driver", "power_limit", "ecc", "mig"), answer[0].split(", "), strict=False)) if answer else {"driver": "no nvidia-smi"}
    )


def _run(*command: str) -> str:
    """Return the output of a program; "" if it is missing, fails or takes long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

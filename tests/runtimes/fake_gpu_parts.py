"""Fakes of parts of ``idx check --gpu``, which end in every way that a part can end."""

from __future__ import annotations

import os
import signal
import sys
import time

from wikidx.runtimes.gpu_check.running import Part
from wikidx.runtimes.gpu_check.task import SkippedPart, Task


def fake_part(name: str, limit_s: float = 60.0, **sizes: object) -> Part:
    return Part(name, "correctness", f"{__name__}:{name}", limit_s, {}, sizes)


def right(task: Task, *, size: int = 0) -> None:
    task.check("one", 1e-7, 1e-5)
    task.check("another", 3e-6, 1e-5)
    task.record("size", {"size": size, "environment": os.environ.get("FAKE", "")})


def wrong(task: Task) -> None:
    """A mutation: its second result is off."""
    task.check("one", 1e-7, 1e-5)
    task.check("off", 0.25, 1e-5)
    task.check("no number", float("nan"), 1e-5)


def abort(task: Task) -> None:
    task.check("before the abort", 0.0, 0.0)
    sys.stderr.write("Faiss assertion 'err == cudaSuccess' failed\n")
    sys.stderr.flush()
    os.abort()


def hang(task: Task) -> None:
    task.check("before the hang", 0.0, 0.0)
    time.sleep(600)


def stubborn(task: Task) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(task)


def raise_error(task: Task) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def absent(task: Task) -> None:
    raise SkippedPart("FAISS is not installed")


def interrupt(task: Task) -> None:
    """Press Ctrl-C: the parent gets the signal."""
    task.check("before the interrupt", 0.0, 0.0)
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)

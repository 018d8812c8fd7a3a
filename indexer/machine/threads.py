"""Threads of this process: their number, and equal ranges of work for them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

_most_threads: int | None = None  # of this process; see ``limit_threads``


def limit_threads(n: int | None) -> None:
    """Limit the threads of this process, because it shares its CPUs with others; None: as many as there are CPUs."""
    global _most_threads
    _most_threads = n


def n_threads() -> int:
    """Return the number of threads to run at once: the CPUs allowed to this process, or the limit of ``limit_threads``."""
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors if _most_threads is None else min(n_processors, _most_threads)


@functools.cache
def limit_forked(set_n_threads: Callable[[int], object]) -> None:
    """Limit a library to one thread in processes forked from this one, where OpenMP would wait for threads that do not exist."""
    os.register_at_fork(after_in_child=lambda: set_n_threads(1))


def equal_ranges(n: int, parts: int) -> list[range]:
    """Return the numbers below n as consecutive ranges of nearly equal size; with more parts than numbers some are empty."""
    bounds = [n * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]

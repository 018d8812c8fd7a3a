"""Number of threads of this process, and equal ranges of work for them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

_most_threads: int | None = None  # of this process; see ``limit_threads``


def limit_threads(n: int | None) -> None:
    """Limit the number of threads of this process; None: one thread per CPU."""
    global _most_threads
    _most_threads = n


def n_threads() -> int:
    """Return the number of threads to run in parallel: one per CPU allowed to this process, at most the limit of ``limit_threads``."""
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors if _most_threads is None else min(n_processors, _most_threads)


@functools.cache
def limit_threads_after_fork(set_n_threads: Callable[[int], object]) -> None:
    """Limit a library to one thread in forked processes. There, OpenMP would wait for threads that do not exist."""
    os.register_at_fork(after_in_child=lambda: set_n_threads(1))


def equal_ranges(n: int, parts: int) -> list[range]:
    """Split ``range(n)`` into consecutive ranges of nearly equal length; some are empty if ``parts`` exceeds ``n``."""
    bounds = [n * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]

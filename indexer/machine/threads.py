"""Threads of this process: how many may run, and equal ranges of work for them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

_most_threads: int | None = None  # of this process; see ``limit_threads``


def limit_threads(n: int | None) -> None:
    """Let this process use at most so many threads, because it shares its processors with others; None: as many as there are processors."""
    global _most_threads
    _most_threads = n


def n_threads() -> int:
    """Return how many threads may run at once: the processors that this process is allowed, or what ``limit_threads`` has set."""
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return n_processors if _most_threads is None else min(n_processors, _most_threads)


@functools.cache
def limit_forked(set_n_threads: Callable[[int], object]) -> None:
    """Let a library use one thread in processes forked from this one: OpenMP's other threads are not there, and would be waited for."""
    os.register_at_fork(after_in_child=lambda: set_n_threads(1))


def equal_ranges(n: int, parts: int) -> list[range]:
    """Return the numbers below n in consecutive ranges, as equal as can be; of more parts than numbers some are empty."""
    bounds = [n * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]

"""Memory limits of a process."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")  # control group of a container
_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_LIMITS = {"VmData": resource.RLIMIT_DATA, "VmSize": resource.RLIMIT_AS}  # by the line of _STATUS with what counts


def memory_bytes() -> int:
    """Return the memory in bytes that this process may use: the machine's, or the smallest limit of the process and its container."""
    memory = min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *(limit for _, limit in _limits())])
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int((_CGROUP / "memory.max").read_text()))
    return memory


def available_bytes() -> int:
    """Return the available memory in bytes, or ``memory_bytes`` if unknown. File pages that the system can drop count as available."""
    available = memory_bytes()
    with contextlib.suppress(OSError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        available = min(available, 1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError, KeyError):
        status = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        available = min([available, *(limit - 1024 * int(status[name].split()[0]) for name, limit in _limits())])
    with contextlib.suppress(OSError, ValueError):
        used = int((_CGROUP / "memory.current").read_text()) - _droppable_bytes()
        available = min(available, int((_CGROUP / "memory.max").read_text()) - used)
    return max(0, available)


def _limits() -> Iterator[tuple[str, int]]:
    """Yield the limits that are set for this process (``ulimit``), in bytes."""
    for name, limit in _LIMITS.items():
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield name, soft


def _droppable_bytes() -> int:
    """Return the bytes of unused file pages in the container's memory."""
    lines = (_CGROUP / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)

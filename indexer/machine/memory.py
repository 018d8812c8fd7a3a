"""Memory limits of a process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")  # control group of a container
_MEMINFO = Path("/proc/meminfo")


def memory_bytes() -> int:
    """Return the memory in bytes that this process may use: the machine's memory, or the container's limit if that is smaller."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int((_CGROUP / "memory.max").read_text()))
    return memory


def available_bytes() -> int:
    """Return the available memory in bytes, or ``memory_bytes`` if unknown. File pages that the system can drop count as available."""
    available = memory_bytes()
    with contextlib.suppress(OSError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        available = min(available, 1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError):
        used = int((_CGROUP / "memory.current").read_text()) - _droppable_bytes()
        available = min(available, int((_CGROUP / "memory.max").read_text()) - used)
    return max(0, available)


def _droppable_bytes() -> int:
    """Return the bytes of unused file pages in the container's memory."""
    lines = (_CGROUP / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)

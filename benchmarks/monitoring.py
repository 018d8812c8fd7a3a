"""Resources of processes: seconds, CPU seconds, private and mapped memory, and disk.

Memory is the sum over the process and all its descendants, sampled 20 times per second from ``/proc/PID/status``. "Own" is ``RssAnon``,
which the system cannot reclaim; "resident" includes the pages of mapped files that have been read, which it can.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.processes import ROOT
from wikidx.base.errors import IdxError

_LOOK_EVERY_S = 0.05
_LOOKS_A_DISK = 20  # memory samples per disk sample


class MemoryUse(NamedTuple):
    """Memory of a process and all its descendants, in bytes."""

    own: int
    resident: int


def status_bytes(pid: int, field: str) -> int:
    """Return a field of a process's status in bytes, 0 if it has none."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * int(fields.get(field, "0 kB").split()[0])


def memory_use(pid: int) -> MemoryUse:
    """Return the current memory of a process tree; 0 for a process that has ended."""
    own = resident = 0
    for member in _tree(pid):
        with suppress(OSError, ValueError):
            own += status_bytes(member, "RssAnon")
            resident += status_bytes(member, "VmRSS")
    return MemoryUse(own, resident)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all its descendants."""
    yield pid
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in children.read_text().split():
                    yield from _tree(int(child))


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder, ignoring files being removed."""
    n_bytes = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            n_bytes += file.stat().st_size if file.is_file() else 0
    return n_bytes


class Monitor:
    """Samples a process, and a folder, until the block ends; ``own``, ``resident`` and ``disk`` are the peaks, in bytes."""

    def __init__(self, pid: int, folder: Path | None = None) -> None:
        self.own = self.resident = self.disk = 0
        self._pid, self._folder = pid, folder
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._take_samples, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _take_samples(self) -> None:
        n_looks = 0
        while True:
            now = memory_use(self._pid)
            self.own, self.resident = max(self.own, now.own), max(self.resident, now.resident)
            if self._folder is not None and n_looks % _LOOKS_A_DISK == 0:
                self.disk = max(self.disk, folder_bytes(self._folder))
            n_looks += 1
            if self._is_over.wait(_LOOK_EVERY_S):
                return


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of one command.

    Attributes:
        s: seconds.
        cpu_s: CPU seconds of all its processes together.
        own: peak of private memory over all samples, bytes.
        resident: peak of its memory including pages of mapped files, bytes.
        disk: peak size of the files in the watched folder, bytes.
    """

    s: float
    cpu_s: float
    own: int
    resident: int
    disk: int


def run_monitored(arguments: Sequence[str], folder: Path | None = None, env: Mapping[str, str] | None = None) -> tuple[Usage, str]:
    """Run Python with some arguments, and watch it and the files in a folder; return its resources and its output.

    This process must start and await nothing else meanwhile: CPU seconds are those of all its finished children.

    Raises:
        IdxError: the command failed; its output is in the message.
    """
    before, started = cpu_s(), perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            with Monitor(process.pid, folder) as watch:
                output, errors = process.communicate()
                seconds = perf_counter() - started
        finally:
            process.kill()
    if process.returncode:
        raise IdxError(f"{' '.join(arguments)} ended with status {process.returncode}: {errors.strip()}")
    disk = max(watch.disk, folder_bytes(folder)) if folder else 0
    return Usage(seconds, cpu_s() - before, watch.own, watch.resident, disk), output


def cpu_s() -> float:
    """Return the CPU seconds of all finished children of this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

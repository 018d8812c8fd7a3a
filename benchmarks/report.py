"""Header and end of every benchmark: machine, versions, commit, date, and the command's exit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wikidx.base.errors import IdxError

Figure = str | int | float

_USERS_MISTAKE = 2  # exit status


def environment(*packages: str) -> dict[str, Figure]:
    """Return machine, Python, the versions of some packages, commit and date."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_bytes() / 1e9:.0f} GB",
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "speed now": f"{_loops_per_s() / 1e6:.0f} M Python loops/s",  # machines are shared: compare only figures of similar speed
        "commit": commit or "unknown",
        "date": time.strftime("%Y-%m-%d"),
    }


def print_table(title: str, rows: Iterable[Mapping[str, Figure]], environment: Mapping[str, Figure], json_path: Path | None) -> None:
    """Print a Markdown table, row by row as they come, and its circumstances; write both as JSON if a path is given."""
    print(f"\n{title}\n")
    printed = list[Mapping[str, Figure]]()
    for row in rows:
        if not printed:
            print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
        printed.append(row)
        print("| " + " | ".join(_format(row[name]) for name in printed[0]) + " |", flush=True)
    print("\n" + ", ".join(f"{name} {value}" for name, value in environment.items()))
    if json_path:
        json_path.write_text(json.dumps({"title": title, "about": environment, "rows": printed}, indent=1) + "\n")


def exit_status(run: Callable[[], int | None]) -> int:
    """Run a command; return its result, 0 for None, or 2 after an ``IdxError``, whose message goes to standard error."""
    try:
        return run() or 0
    except IdxError as error:
        print(error, file=sys.stderr)
        return _USERS_MISTAKE


def _format(value: Figure) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def _loops_per_s() -> float:
    """Return this machine's current rate of an empty Python loop, the best of five short tries."""
    n, best = 500_000, 0.0
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(n):
            pass
        best = max(best, n / (time.perf_counter() - started))
    return best


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _processor() -> str:
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started

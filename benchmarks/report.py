"""Header and end of every benchmark: options, machine, versions, commit, date, tables, and the command's exit."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from wikidx.base.errors import IdxError

Figure = str | int | float
Row = Mapping[str, Figure]

_USERS_MISTAKE = 2  # exit status


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for a benchmark with the options of all: a file for the figures, and a folder to work in."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="output file for all figures")
    made.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / f"idx-{name}", help="work folder; it is kept")
    return made


def environment(*packages: str) -> dict[str, Figure]:
    """Return machine, Python, the versions of some packages, commit and date."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {memory_bytes / 1e9:.0f} GB",
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "speed now": f"{_loops_per_s() / 1e6:.0f} M Python loops/s",  # machines are shared: compare only figures of similar speed
        "commit": describe(Path(__file__).parent) or "unknown",
        "date": time.strftime("%Y-%m-%d"),
    }


def describe(checkout: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, cwd=checkout, check=False).stdout.strip()


def print_table(title: str, rows: Iterable[Row], environment: Mapping[str, Figure], json_path: Path | None) -> None:
    """Print a Markdown table, row by row as they come, and its circumstances; write both as JSON if a path is given."""
    printed = _print_rows(title, rows)
    print("\n" + ", ".join(f"{name} {value}" for name, value in environment.items()))
    if json_path:
        json_path.write_text(json.dumps({"title": title, "about": environment, "rows": printed}, indent=1) + "\n")


def print_tables(tables: Mapping[str, Iterable[Row]], environment: Mapping[str, Figure], json_path: Path | None) -> None:
    """Print several tables by title, and their circumstances; after each, write all so far as JSON if a path is given."""
    printed: dict[str, list[Row]] = {}
    for title, rows in tables.items():
        printed[title] = _print_rows(title, rows)
        if json_path:
            json_path.write_text(json.dumps({"about": environment, "tables": printed}, indent=1) + "\n")
    print("\n" + ", ".join(f"{name} {value}" for name, value in environment.items()))


def exit_status(run: Callable[[], int | None]) -> int:
    """Run a command; return its result, 0 for None, or 2 after an ``IdxError``, whose message goes to standard error."""
    try:
        return run() or 0
    except IdxError as error:
        print(error, file=sys.stderr)
        return _USERS_MISTAKE


def run(made: argparse.ArgumentParser, work: Callable[[argparse.Namespace], int | None]) -> int:
    """Read the command line and do its work; see ``exit_status``."""
    options = made.parse_args()
    return exit_status(lambda: work(options))


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _print_rows(title: str, rows: Iterable[Row]) -> list[Row]:
    print(f"\n{title}\n")
    printed = list[Row]()
    for row in rows:
        if not printed:
            print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
        printed.append(row)
        print("| " + " | ".join(_format(row[name]) for name in printed[0]) + " |", flush=True)
    return printed


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

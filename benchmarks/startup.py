"""Start-up time of the command line.

python -m benchmarks.startup
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure, environment, print_table


def measure(runs: int, *arguments: str) -> dict[str, Figure]:
    """Run idx several times in new processes; return median and slowest."""
    command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", *arguments]
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - started)
    return {"command": f"idx {' '.join(arguments)}", "median s": statistics.median(seconds), "slowest s": max(seconds)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["IDX_HOME"] = home
        subprocess.run(
            [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", "build", "sample"], check=True, capture_output=True
        )
        rows = [measure(options.runs, *command) for command in (("--help",), ("list",), ("search", "sample", "highest mountain"))]
    print_table("Command line", rows, environment("typer"), options.json)


if __name__ == "__main__":
    main()

"""Builds an engine's index in its own process and measures it; ``python -m benchmarks.engines.build`` is that process.

The memory of a build is the largest sum over its process and children at one moment, sampled five times per second, or the peak of its
process alone, if that is more. Memory-mapped files count as far as they are read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.engines.kinds import find_kind, peak_bytes, pin, use_data_home
from benchmarks.monitoring import memory_use
from benchmarks.report import exit_status
from wikidx.base.errors import IdxError

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Build:
    """A build's figures."""

    engine: str
    threads: int
    seconds: float
    index_bytes: int
    peak_bytes: int


def build(engine: str, folder: Path, threads: int, *, force: bool = False) -> Build:
    """Return the figures of a build on this many CPUs; a stored measurement is not repeated, unless ``force``.

    Raises:
        IdxError: the build failed; its output is on standard error.
    """
    stored = folder / f"build-{engine}-{threads}.json"
    if stored.exists() and not force:
        return Build(**json.loads(stored.read_bytes()))
    stored.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.engines.build", engine, str(folder), "--threads", str(threads), "--out", str(stored)]
    peak = 0
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            while process.poll() is None:
                peak = max(peak, memory_use(process.pid).resident)
                time.sleep(_LOOK_EVERY_S)
        finally:
            process.kill()
    if process.returncode:
        raise IdxError(f"the index of '{engine}' in {folder} could not be built: see above")
    found = Build(**json.loads(stored.read_bytes()))
    found = Build(engine, threads, found.seconds, found.index_bytes, max(peak, found.peak_bytes))
    stored.write_text(json.dumps(asdict(found)))
    return found


def _run(engine: str, folder: Path, threads: int, out: Path) -> None:
    """Build in this process, and record its resources."""
    pin(threads)
    use_data_home(folder)
    kind = find_kind(engine)
    kind.prepare(folder)
    started = time.perf_counter()
    index = kind.build(folder, threads)
    seconds = time.perf_counter() - started
    n_bytes = sum(file.stat().st_size for file in index.rglob("*") if file.is_file())
    out.write_text(json.dumps(asdict(Build(engine, threads, seconds, n_bytes, peak_bytes()))))


def main() -> int:
    """Run the build process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.build")
    parser.add_argument("engine")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    return exit_status(lambda: _run(options.engine, options.folder, options.threads, options.out))


if __name__ == "__main__":
    sys.exit(main())

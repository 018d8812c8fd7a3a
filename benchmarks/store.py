"""Speed and peak memory of building a store, by the corpus's size, and speed of opening and reading it.

    python -m benchmarks.store FILE.jsonl [FILE.jsonl ...]

Each file (``python -m benchmarks.synthetic`` makes them) is built in its own process, whose peak memory is the figure; reading is
measured in another one, warm: every requested row has been read before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, environment, print_table
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus

_BATCH = 1000
_OPENINGS = 20
_READINGS = 200


def measure_build(file: Path, split: str | None) -> dict[str, Figure]:
    """Build a store in this process and return its figures."""
    started = time.perf_counter()
    manifest = build_store(custom_corpus(file, "measured", ReadOptions(split=split)), StoreOptions())
    seconds = time.perf_counter() - started
    n_passages = manifest.counts["rows"]
    return {
        "passages": n_passages,
        "build s": seconds,
        "passages/s": n_passages / seconds,
        "peak RSS MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "store bytes/passage": sum(record.n_bytes for record in manifest.files.values()) / n_passages,
    }


def measure_reading() -> dict[str, Figure]:
    """Open the store built last and read random rows of it; return the figures."""
    openings = []
    for _ in range(_OPENINGS):
        started = time.perf_counter()
        store = open_store("measured")
        openings.append(time.perf_counter() - started)
        del store  # otherwise the next opening would find it open
    store = open_store("measured")
    rows = np.random.default_rng(0).integers(0, len(store), size=(_READINGS, _BATCH))
    n_bytes = sum(len(passage.text.encode()) for line in rows for passage in store.get_many(line))  # warms up
    rates = []
    for line in rows:
        started = time.perf_counter()
        store.get_many(line)
        rates.append(_BATCH / (time.perf_counter() - started))
    return {
        "open ms (median)": 1000 * statistics.median(openings),
        f"get_many({_BATCH}) passages/s (median)": statistics.median(rates),
        "(10th percentile)": float(np.percentile(rates, 10)),
        "text bytes/passage": n_bytes / rows.size,
    }


def _in_process(*arguments: str) -> dict[str, Figure]:
    ran = subprocess.run([sys.executable, "-m", "benchmarks.store", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Figure] = json.loads(ran.stdout)
    return figures


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--split", help="splitting rule for files of articles")
    parser.add_argument("--runs", type=int, default=3, help="number of builds of each file; the build with the median time is shown")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", choices=["build", "read"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        figures = measure_build(options.files[0], options.split) if options.step == "build" else measure_reading()
        sys.stdout.write(json.dumps(figures))
        return
    split = ["--split", options.split] if options.split else []
    rows = []
    for file in options.files:
        runs = []
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as home:
                os.environ["IDX_HOME"] = home
                runs.append({**_in_process(str(file), *split, "--step", "build"), **_in_process("--step", "read")})
        rows.append(sorted(runs, key=lambda run: run["build s"])[len(runs) // 2])
    print_table("Passage store", rows, environment("lmdb", "zstandard"), options.json)


if __name__ == "__main__":
    main()

"""The multi-query call on groups of five queries, GAR's; ``python -m benchmarks.full_size.groups FOLDER`` prints its figures as JSON."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.engines.kinds import NAME, pin, use_data_home
from benchmarks.gar import gar_groups
from benchmarks.synthetic import data_folder
from wikidx import SearchOptions, open_searcher
from wikidx.retrievers.searcher import LocalSearcher

_BATCH = 64


def measure(searcher: LocalSearcher, groups: Sequence[Sequence[str]], k: int, seconds: float) -> dict[str, float]:
    """Return the median and the 99th percentile of one group, and the groups per second, and per CPU second, in batches of 64."""
    options = SearchOptions(k=k, depth=max(k, 100))
    searcher.search_groups(groups[:_BATCH], options)
    alone = list[float]()
    while len(alone) < 20 or (len(alone) < len(groups) and sum(alone) < seconds):
        started = time.perf_counter()
        searcher.search_groups([groups[len(alone) % len(groups)]], options)
        alone.append(time.perf_counter() - started)
    n, started, started_cpu = 0, time.perf_counter(), time.process_time()
    while n == 0 or (n + _BATCH <= len(groups) and time.perf_counter() - started < seconds):
        searcher.search_groups(groups[n : n + _BATCH], options)
        n += _BATCH
    took, took_cpu = time.perf_counter() - started, time.process_time() - started_cpu
    percentile_99 = sorted(alone)[len(alone) * 99 // 100]
    return {"p50_s": statistics.median(alone), "p99_s": percentile_99, "groups_per_s": n / took, "groups_per_cpu_s": n / took_cpu}


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_size.groups")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    pin(options.threads)
    use_data_home(options.folder)
    groups = gar_groups(data_folder() / "gar")
    random.Random(0).shuffle(groups)
    with open_searcher(NAME, "bm25") as searcher:
        found = {f"k{k}_{name}": value for k in (10, 100) for name, value in measure(searcher, groups, k, options.seconds).items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

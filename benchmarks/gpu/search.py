"""Speed of exact search over random float16 vectors, as many as fit; with ``--device cpu`` the same on the CPU.

    python -m benchmarks.gpu.search --json FILE         # 21,015,324 x 768, which is wiki2018's size
    python -m benchmarks.gpu.search --device cpu --n 20000 --dim 64 --batches 1 8 --ks 10 --rounds 2

A row is a search of a batch of queries that can be written as float16 without loss, or of others. "product ms" is the time of the
scores alone, "pick ms" that of the best k of each tile when its scores are there, and "gap ms" the search less the product. "copy %" is the
rate at which the vectors are read, of that of a copy, and "FLOP %" the rate of their products with the queries, of that of large square
ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.report import Figure, environment, parser, print_tables, run
from wikidx.base.machine.devices import count_gpus
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards
from wikidx.indexer.indexes.exact.gpu_best import TopK, select_by_torch
from wikidx.indexer.indexes.exact.memory import WORK_BYTES
from wikidx.runtimes.cli.check_gpu import describe_device, fill_random, measure_ceilings, median_seconds, wait_for

_NONE = np.empty(0, dtype=np.int64)
_OPENED_ROWS = 1 << 20

Rows = Iterator[dict[str, Figure]]


def n_that_fit(device: str, n_rows: int, dim: int) -> int:
    """Return how many of the vectors fit beside what a search needs."""
    if not device.startswith("cuda"):
        return n_rows
    torch.cuda.empty_cache()
    return min(n_rows, max(0, torch.cuda.mem_get_info(device)[0] - WORK_BYTES) // (2 * dim))


def searches(shard: DeviceShard, options: argparse.Namespace) -> Rows:
    """Time searches until there is no time left."""
    device, ends_at, engine = options.device, time.monotonic() + options.seconds, TorchEngine([shard])
    bandwidth, rate = measure_ceilings(device)
    for batch in options.batches:
        for kind in ("float16", "float32"):
            queries = np.random.default_rng(batch).standard_normal((batch, options.dim), dtype=np.float32)
            queries = queries.astype(np.float16).astype(np.float32) if kind == "float16" else queries
            product_s = median_seconds(device, partial(_products, shard, queries), options.rounds)
            for k in options.ks:
                if time.monotonic() > ends_at:
                    print("the searches after these: no time left", file=sys.stderr)
                    return
                seconds = median_seconds(device, partial(engine.search, queries, k), options.rounds)
                yield {
                    "batch": batch,
                    "queries": kind,
                    "k": k,
                    "ms": 1e3 * seconds,
                    "queries/s": batch / seconds,
                    "product ms": 1e3 * product_s,
                    "pick ms": 1e3 * _pick_seconds(device, shard, queries, k),
                    "gap ms": 1e3 * max(0.0, seconds - product_s),
                    "copy %": 100 * shard.vectors.nbytes / seconds / bandwidth,
                    "FLOP %": 100 * 2 * batch * shard.vectors.numel() / seconds / rate,
                }


def _products(shard: DeviceShard, queries: Vectors) -> None:
    """Compute the scores of all rows by the queries' first terms, and drop them."""
    with torch.inference_mode():
        terms, n_rows = [shard.split_queries(queries).first], shard.tile_rows(len(queries))
        for start in range(0, len(shard.vectors), n_rows):
            shard.scores(terms, start, start + n_rows)


def _pick_seconds(device: str, shard: DeviceShard, queries: Vectors, k: int) -> float:
    """Return the time of picking from tiles whose scores are there, by events of the GPU or the clock."""
    with torch.inference_mode():
        terms, seconds = shard.split_queries(queries), 0.0
        best = TopK(min(k, len(shard.vectors)), terms.scales, shard.select)
        for start, scores in shard.tiles([terms.first], best):
            wait_for(device)
            seconds += _timed(device, partial(best.offer, scores, start))
        return seconds + _timed(device, best.keys)


def _timed(device: str, work: Callable[[], object]) -> float:
    if not device.startswith("cuda"):
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


def opening(device: str, dim: int, n_rows: int) -> Rows:
    """Time the copy of vectors from memory to the device."""
    vectors = np.zeros((n_rows, dim), dtype=np.float16)
    seconds = median_seconds(device, lambda: load_shards(vectors, _NONE, [device]), 3)
    yield {"rows": n_rows, "GB/s": vectors.nbytes / seconds / 1e9, "s for 32 GB": 32e9 * seconds / vectors.nbytes}


def _run(options: argparse.Namespace) -> None:
    n_rows = n_that_fit(options.device, options.n, options.dim)
    copied = opening(options.device, options.dim, min(n_rows, _OPENED_ROWS))
    shard = DeviceShard(fill_random(options.device, n_rows, options.dim), 0, _NONE)
    listing = "torch alone" if shard.select is select_by_torch else "Triton"
    about = (
        environment() | describe_device(options.device) | {"rows": n_rows, "components": options.dim, "best rows are listed by": listing}
    )
    print_tables({"Searches": searches(shard, options), "Vectors copied from memory": copied}, about, options.json)


def main() -> int:
    """Run the command line."""
    made = parser("gpu.search", __doc__)
    made.add_argument("--device", default="cuda:0" if count_gpus() else "cpu")
    made.add_argument("--n", type=int, default=21_015_324, help="number of vectors")
    made.add_argument("--dim", type=int, default=768, help="components of the vectors")
    made.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256, 1_024], help="queries at a time")
    made.add_argument("--ks", type=int, nargs="+", default=[10, 100, 1_000])
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=150, help="after which no further search begins")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())

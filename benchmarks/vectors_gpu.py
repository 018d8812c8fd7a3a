"""Exact search on one GPU, as a share of its bandwidth and throughput (``python -m benchmarks.vectors --device cuda``).

Vectors of 768 components in float16 are made on the card. "of bandwidth" is the bytes of all vectors per second, as a share of a
copy's rate on the card, "of matrix rate" the multiplications per second, as a share of the rate of large square products; both are
measured in the same run. Rows are ranked by the first halves of float32 queries and scored again, by float16 queries at once. "top-k" is
the share of the time in addition to the products. "difference" is the largest one from float32 products, of the returned scores and of the
best of 100,000 sampled rows, relative to the best score.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from benchmarks.report import Figure, seconds_of
from wikidx.indexer.base import Hits, Vectors
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine

BATCHES = (1, 8, 64, 1024)
DIM = 768
_PAGE = 1 << 20  # vectors made or copied at a time
_SAMPLED = 100_000


def measure_device(device: str, n: int, batches: Sequence[int], ks: Sequence[int], rounds: int) -> Iterator[dict[str, Figure]]:
    """Measure searches over ``n`` vectors, and yield the figures of each kind of search."""
    bandwidth, matrix_rate = bytes_per_s(device), flops_per_s(device)
    torch.cuda.empty_cache()  # these two took up to 8.6 GB
    vectors = random_vectors(device, n)
    shard = DeviceShard(vectors, 0, np.empty(0, dtype=np.int64))
    engine = TorchEngine([shard])
    for batch in batches:
        for kind in ("float16", "float32"):
            queries = (
                random_vectors(device, batch).float().cpu().numpy() if kind == "float16" else unit_vectors(np.random.default_rng(1), batch)
            )
            products = median_seconds(device, rounds, lambda queries=queries: products_alone(shard, queries))  # type: ignore[misc]
            for k in ks:
                seconds = median_seconds(device, rounds, lambda queries=queries, k=k: engine.search(queries, k))  # type: ignore[misc]
                yield {
                    "card": torch.cuda.get_device_name(device) if vectors.is_cuda else device,
                    "vectors": n,
                    "batch": batch,
                    "queries": kind,
                    "k": k,
                    "ms": 1000 * seconds,
                    "queries/s": batch / seconds,
                    "GB/s": vectors.nbytes / seconds / 1e9,
                    "of bandwidth %": 100 * vectors.nbytes / seconds / bandwidth,
                    "TFLOP/s": 2 * batch * n * DIM / seconds / 1e12,
                    "of matrix rate %": 100 * 2 * batch * n * DIM / seconds / matrix_rate,
                    "top-k %": 100 * (1 - products / seconds),
                    "difference": difference(vectors, queries, engine.search(queries, k)),
                }


def random_vectors(device: str, n: int) -> torch.Tensor:
    """Return random vectors of length about 1, float16."""
    vectors = torch.empty((n, DIM), dtype=torch.float16, device=device)
    for start in range(0, n, _PAGE):
        vectors[start : start + _PAGE].normal_(std=DIM**-0.5)
    return vectors


def unit_vectors(generator: np.random.Generator, n: int) -> Vectors:
    """Return random vectors of length about 1, float32."""
    return generator.standard_normal((n, DIM), dtype=np.float32) * np.float32(DIM**-0.5)


@torch.inference_mode()
def products_alone(shard: DeviceShard, queries: Vectors) -> None:
    """Compute the scores of all rows by the queries' first terms, and discard them."""
    for _ in shard.tiles([shard.split_queries(queries).first]):
        pass


def median_seconds(device: str, rounds: int, work: Callable[[], object]) -> float:
    """Return the median duration of a call on a device, after a warm-up."""

    def run_and_wait() -> None:
        work()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)

    run_and_wait()
    return statistics.median(seconds_of(run_and_wait) for _ in range(rounds))


def bytes_per_s(device: str) -> float:
    """Return the bytes per second read and written by a copy of 4 GiB on the device; less is copied on a CPU."""
    n_bytes = 4 << 30 if torch.device(device).type == "cuda" else 64 << 20
    source, target = (torch.zeros(n_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * n_bytes / median_seconds(device, 20, lambda: target.copy_(source))


def flops_per_s(device: str) -> float:
    """Return the device's rate for large square float16 products with float32 results, as in search."""
    side = 8192 if torch.device(device).type == "cuda" else 512
    left, right = (torch.randn(side, side, device=device).half() for _ in range(2))
    if torch.device(device).type == "cuda":
        return 2 * side**3 / median_seconds(device, 20, lambda: torch.mm(left, right, out_dtype=torch.float32))
    return 2 * side**3 / median_seconds(device, 3, lambda: left.float() @ right.float())


def difference(vectors: torch.Tensor, queries: Vectors, hits: Hits) -> float:
    """Return the largest difference from float32 products, relative to each query's best score, over some queries."""
    generator, worst = np.random.default_rng(2), 0.0
    for number in np.unique(np.linspace(0, len(queries) - 1, 8).astype(np.int64)).tolist():
        query = torch.tensor(queries[number], device=vectors.device)
        found = vectors[torch.tensor(hits.rows[number], device=vectors.device)].float() @ query
        sampled = generator.choice(len(vectors), min(_SAMPLED, len(vectors)), replace=False)
        others = sampled[~np.isin(sampled, hits.rows[number])]
        missed = float((vectors[torch.tensor(others, device=vectors.device)].float() @ query).max()) if len(others) else -np.inf
        scores = hits.scores[number]
        off = max(float(np.abs(found.cpu().numpy() - scores).max()), missed - float(scores[-1]))
        worst = max(worst, off / abs(float(scores[0])))
    return worst

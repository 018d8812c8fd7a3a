"""Metrics of a server, for Prometheus.

In the multiprocess mode of prometheus_client, each process counts in files of a common folder, and any process can add up all files.
``workers`` enables this mode by an environment variable, which must be set before prometheus_client is imported.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
PATHS = {"/v1/search", "/v1/ask", "/v1/embeddings", "/v1/models", "/retrieve", "/v1/indexes", "/health", "/ready", "/metrics"}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 10_000)
_NAMES = ("corpus", "retriever")
_INDEX = ("corpus", "index")
_SHARD = ("shard",)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self.requests = Counter("idx_requests", "Requests answered; 499: the client had gone.", ("path", "status"), registry=own)
        self.request_seconds = _histogram("idx_request_seconds", "From a request's header to the end of its answer.", ("path",), own)
        self.batch_queries = Histogram("idx_batch_queries", "Queries searched in one batch.", _NAMES, buckets=_SIZES, registry=own)
        self.search_seconds = _histogram("idx_search_seconds", "Time of these searches.", _NAMES, own)
        self.queue = _gauge("idx_queue_queries", "Queries that are waiting or being searched.", _NAMES, own)
        self.dropped = Counter("idx_dropped", "Searches that were not done: their client had gone, or their time was over.", registry=own)
        self.cache_hits = Counter("idx_cache_hits", "Queries answered from a retriever's cache.", _INDEX, registry=own)
        self.cache_misses = Counter("idx_cache_misses", "Queries that the cache did not have.", _INDEX, registry=own)
        self.ready = _gauge("idx_ready_processes", "Processes that have opened everything.", (), own)
        self.shard_seconds = _histogram("idx_shard_seconds", "Time of a shard's searches, as it took it.", _SHARD, own)
        self.shard_overhead_seconds = _histogram("idx_shard_overhead_seconds", "Time of all shards together beyond the slowest.", (), own)
        self.shard_failures = Counter("idx_shard_failures", "Calls that a shard's replica did not answer.", _SHARD, registry=own)
        self.shard_unavailable = Counter("idx_shard_unavailable", "Calls that no replica answered.", _SHARD, registry=own)
        self.shard_replicas = _gauge("idx_shard_replicas", "Replicas that answer.", _SHARD, own)
        self.shard_bytes = _gauge("idx_shard_resident_bytes", "Memory of a shard's largest replica.", _SHARD, own)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._total())

    def n_ready(self) -> int:
        """Return the number of processes that have opened all corpora and retrievers."""
        return int(self._total().get_sample_value("idx_ready_processes") or 0)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request; unknown paths share one label."""
        if path not in PATHS:
            is_passages = path.startswith("/v1/corpora/") and path.endswith("/passages")
            path = "/v1/corpora/{corpus}/passages" if is_passages else "other"
        self.requests.labels(path, status).inc()
        self.request_seconds.labels(path).observe(seconds)

    def _total(self) -> CollectorRegistry:
        """Return the metrics summed over all processes."""
        folder = os.environ.get(FOLDER)
        if folder is None:
            return self._registry
        total = CollectorRegistry()
        _AllProcesses(total, folder)  # type: ignore[no-untyped-call]
        return total


class _AllProcesses(MultiProcessCollector):
    """Sum of the metrics of all processes."""

    def collect(self) -> Iterable[Metric]:
        """Read the files of all processes."""
        while True:
            try:
                return super().collect()  # type: ignore[no-any-return,no-untyped-call]
            except struct.error:  # a process has just created its file, which is still empty
                time.sleep(0.001)


def _histogram(name: str, description: str, labels: tuple[str, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(name, description, labels, buckets=_SECONDS, registry=registry)


def _gauge(name: str, description: str, labels: tuple[str, ...], registry: CollectorRegistry) -> Gauge:
    """Return a gauge that is summed over the live processes."""
    return Gauge(name, description, labels, registry=registry, multiprocess_mode="livesum")

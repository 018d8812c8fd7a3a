"""Counts and times of a server, in memory that its processes share: each adds to a line of its own, whoever is asked adds the lines up.

The layout follows from what is served, so that all processes have the same. The text is Prometheus's exposition format 0.0.4.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, product

_BYTES = 8
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 10_000.0)

Labels = Mapping[str, Sequence[str]]


class Family:
    """Numbers of one name, one for each combination of labels; with bounds each is a histogram: counts up to them, a sum and a count."""

    def __init__(self, name: str, about: str, kind: str, labels: Labels, bounds: Sequence[float] = ()) -> None:
        self.name, self.about, self.kind, self.bounds = name, about, kind, tuple(bounds)
        self._names = tuple(labels)
        self._size = len(bounds) + 2 if bounds else 1
        self.places = {values: number * self._size for number, values in enumerate(product(*labels.values()))}
        self.n_numbers = len(self.places) * self._size
        self._mine = memoryview(bytes(_BYTES)).cast("d")  # set by ``attach``

    def attach(self, mine: memoryview[float]) -> None:
        """Take this process's part of the shared memory."""
        self._mine = mine

    def add(self, *labels: str, value: float = 1.0) -> None:
        """Add to a number."""
        self._mine[self.places[labels]] += value

    def set(self, *labels: str, value: float) -> None:
        """Set a number."""
        self._mine[self.places[labels]] = value

    def observe(self, *labels: str, value: float) -> None:
        """Count a value in a histogram."""
        place = self.places[labels]
        bucket = bisect_left(self.bounds, value)
        if bucket < len(self.bounds):
            self._mine[place + bucket] += 1
        self._mine[place + self._size - 2] += value
        self._mine[place + self._size - 1] += 1

    def lines(self, numbers: Sequence[float]) -> Iterator[str]:
        """Yield the text of the family's numbers; what was never counted is left out."""
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, place in self.places.items():
            if self.kind != "gauge" and not any(numbers[place : place + self._size]):
                continue
            labels = [f'{name}="{value}"' for name, value in zip(self._names, values, strict=True)]
            if not self.bounds:
                yield _line(self.name, labels, numbers[place])
                continue
            total, count = numbers[place + self._size - 2 : place + self._size]
            below = accumulate(numbers[place : place + len(self.bounds)])
            for bound, n in zip(self.bounds, below, strict=True):
                yield _line(f"{self.name}_bucket", [*labels, f'le="{bound:g}"'], n)
            yield _line(f"{self.name}_bucket", [*labels, 'le="+Inf"'], count)
            yield _line(f"{self.name}_sum", labels, total)
            yield _line(f"{self.name}_count", labels, count)


def _line(name: str, labels: Sequence[str], value: float) -> str:
    return f"{name}{{{','.join(labels)}}} {value!r}" if labels else f"{name} {value!r}"


class Metrics:
    """Everything that is counted."""

    PATHS = ("/v1/search", "/retrieve", "/v1/corpora/{corpus}/passages", "/v1/indexes", "/health", "/ready", "/metrics", "other")
    STATUSES = ("200", "304", "400", "401", "404", "405", "408", "413", "422", "499", "500", "501", "503", "504", "other")

    def __init__(self, corpora: Sequence[str], retrievers: Sequence[str], n_processes: int = 1, n_shards: int = 0) -> None:
        names = {"corpus": corpora, "retriever": retrievers}
        self.requests = Family(
            "idx_requests_total",
            "Requests answered; 499: the client had gone.",
            "counter",
            {"path": self.PATHS, "status": self.STATUSES},
        )
        self.request_seconds = Family(
            "idx_request_seconds", "From the request's head to the end of its answer.", "histogram", {"path": self.PATHS}, SECONDS
        )
        self.batch_queries = Family("idx_batch_queries", "Queries that were searched at once.", "histogram", names, SIZES)
        self.search_seconds = Family("idx_search_seconds", "Time of these searches.", "histogram", names, SECONDS)
        self.queue = Family("idx_queue_queries", "Queries that are waiting or under way.", "gauge", names)
        self.dropped = Family("idx_dropped_total", "Searches that were not done, because nobody waited for them any more.", "counter", {})
        stages = {"corpus": corpora, "index": list(dict.fromkeys(stage for name in retrievers for stage in name.split("+")))}
        self.cache_hits = Family("idx_cache_hits_total", "Queries answered from a first stage's cache.", "counter", stages)
        self.cache_misses = Family("idx_cache_misses_total", "Queries that the cache did not have.", "counter", stages)
        self.ready = Family("idx_ready_processes", "Processes that have opened everything.", "gauge", {})
        of_shard, of_searches = {"shard": [str(number) for number in range(n_shards)]}, {"of": ["searches"] if n_shards else []}
        self.shard_seconds = Family("idx_shard_seconds", "Time of a shard's searches, as it took it.", "histogram", of_shard, SECONDS)
        self.shard_overhead_seconds = Family(
            "idx_shard_overhead_seconds", "What asking all shards and merging took beyond the slowest.", "histogram", of_searches, SECONDS
        )
        self.shard_failures = Family("idx_shard_failures_total", "Calls that a shard's replica did not answer.", "counter", of_shard)
        self.shard_unavailable = Family("idx_shard_unavailable_total", "Calls that no replica answered.", "counter", of_shard)
        self.shard_replicas = Family("idx_shard_replicas", "Replicas that answer.", "gauge", of_shard)
        self.shard_bytes = Family("idx_shard_resident_bytes", "Memory of a shard's largest replica.", "gauge", of_shard)
        self.families = [family for family in vars(self).values() if isinstance(family, Family) and family.places]
        self._n_numbers = sum(family.n_numbers for family in self.families)
        self._shared = memoryview(mmap.mmap(-1, max(1, n_processes) * self._n_numbers * _BYTES)).cast("d")
        self.join(0)

    def join(self, number: int) -> None:
        """Count on the line of the process of that number; what another one had open or waiting there is gone."""
        place = number * self._n_numbers
        for family in self.families:
            family.attach(self._shared[place : place + family.n_numbers])
            place += family.n_numbers
            for labels in family.places if family.kind == "gauge" else ():
                family.set(*labels, value=0)

    def totals(self, family: Family) -> list[float]:
        """Return the numbers of a family, added up over the processes."""
        first = sum(other.n_numbers for other in self.families[: self.families.index(family)])
        starts = range(first, len(self._shared), self._n_numbers)
        return [sum(column) for column in zip(*(self._shared[start : start + family.n_numbers] for start in starts), strict=True)]

    def text(self) -> str:
        """Return all numbers for Prometheus."""
        return "\n".join(line for family in self.families for line in family.lines(self.totals(family))) + "\n"

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        found = str(status)
        self.requests.add(path, found if found in self.STATUSES else "other")
        self.request_seconds.observe(path, value=seconds)

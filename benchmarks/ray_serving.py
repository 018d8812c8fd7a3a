"""Time that a cluster of shards adds to a search, beyond the time of the slowest shard.

    python -m benchmarks.ray serving sample                               # a built corpus, by minilm
    python -m benchmarks.ray serving sample --retriever minilm bm25+minilm --batch 1 32 --questions FILE

The cluster is three nodes on this machine, each a Ray process, with one process for each shard: shards that would have a machine each share
its CPUs here, and the figures include their waiting for one another. The time of the slowest shard, which it measures itself, is
subtracted from the time of each search.

called         calling all shards, receiving their answers and merging, in a process that does nothing else (for retrievers joined with
               +, the last one)
retriever      the same in a server, with its other threads and the client in one process: the value of ``idx_shard_overhead_seconds``
request        the same for an HTTP request by one client, with reading, queueing, merging groups, passages and JSON
one searcher   the same request to a server without shards; nothing is subtracted
same           share of questions with the same passages in the same order from both, and the largest difference of their scores
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import Figure, environment, print_table
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.cluster.nodes import connect, load_ray
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking, Retriever
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.cluster.service import Layout, ShardService
from wikidx.retrievers.errors import ServiceError
from wikidx.retrievers.opening import OpenRetriever
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url
from wikidx.runtimes.questions.reading import read_questions

_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
_WARM_UP = 20
_N_DRAWN = 1_000
_SWITCH_S = 5e-5  # as in a separate ``Service`` process; here the client shares the process

Times = list[float]


class RecordingService(ShardService):
    """Records, for each search, the time of its slowest shard and the rest; ``opener`` opens retrievers there."""

    def __init__(self, settings: Settings, layout: Layout, metrics: Metrics) -> None:
        super().__init__(settings, layout, metrics)
        self.noted = list[tuple[float, float]]()
        self.opener: OpenRetriever

    @contextmanager
    def exchange(self) -> Iterator[OpenRetriever]:
        """Start the shards, and keep the opener of retrievers over them."""
        with super().exchange() as self.opener:
            yield self.opener

    def observe(self, slowest_s: float, overhead_s: float) -> None:
        """Record a search."""
        self.noted.append((slowest_s, overhead_s))
        super().observe(slowest_s, overhead_s)


class RequestTimes(NamedTuple):
    """Seconds of each request; of these the part beyond the slowest shard; of that the retriever's part; and the results."""

    requests: Times
    overhead: Times
    retriever: Times
    rankings: list[Ranking]


@contextmanager
def start_cluster(n_nodes: int) -> Iterator[str]:
    """Start nodes of a cluster on this machine; yield its address."""
    load_ray()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args=_NODE)
    try:
        for _ in range(n_nodes - 1):
            cluster.add_node(**_NODE)
        yield cluster.address
    finally:
        cluster.shutdown()


@contextmanager
def serve(settings: Settings, metrics: Metrics, shards: ShardService | None) -> Iterator[str]:
    """Serve in a thread; yield the address."""
    listener = listen(settings)
    service = Service(settings, listener, metrics, shards)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(service.run)
        try:
            with RemoteSearcher(server_url(listener), timeout=600) as remote:
                while not is_open(remote):
                    if run.done():
                        run.result()  # raises the server's exception
                    time.sleep(0.1)
            yield server_url(listener)
        finally:
            service.stop()


def is_open(remote: RemoteSearcher) -> bool:
    """Return whether a server answers searches."""
    try:
        remote.search(["until it is open"])
    except ServiceError:
        return False
    return True


def time_requests(remote: RemoteSearcher, batches: Sequence[Sequence[str]], k: int, shards: RecordingService | None) -> RequestTimes:
    """Search for one batch after the other; without shards nothing is subtracted."""
    times = RequestTimes([], [], [], [])
    for number, batch in enumerate(batches):
        if shards is not None:
            shards.noted.clear()
        started = time.perf_counter()
        rankings = remote.search(batch, SearchOptions(k=k))
        seconds = time.perf_counter() - started
        slowest_s, overhead_s = shards.noted[0] if shards is not None and shards.noted else (0.0, 0.0)  # BM25 is not sharded
        times.rankings.extend(rankings)
        if number >= _WARM_UP:
            times.requests.append(seconds)
            times.overhead.append(seconds - slowest_s)
            times.retriever.append(overhead_s)
    return times


def check_equal(rankings: Sequence[Ranking], expected: Sequence[Ranking]) -> dict[str, Figure]:
    """Compare rankings of the same questions."""
    pairs = list(zip(rankings, expected, strict=True))
    equal = [(sharded, single) for sharded, single in pairs if [hit.row for hit in sharded] == [hit.row for hit in single]]
    differences = [abs(mine.score - theirs.score) for sharded, single in equal for mine, theirs in zip(sharded, single, strict=True)]
    return {"same %": 100 * len(equal) / len(pairs), "of": len(pairs), "score difference": max(differences, default=0.0)}


def time_retriever(retriever: Retriever, batches: Sequence[Sequence[str]], shards: RecordingService) -> Times:
    """Return the seconds of each search beyond its slowest shard if only the retriever is called, by the only busy thread."""
    shards.noted.clear()
    for batch in batches:
        retriever.retrieve(batch, SearchOptions().depth)
    return [overhead_s for _, overhead_s in shards.noted[_WARM_UP:]]


def percentile(times: Times, quantile: float) -> float:
    """Return a percentile of the times, in milliseconds."""
    return 1e3 * sorted(times)[min(len(times) - 1, int(quantile * len(times)))] if times else float("nan")


def measure(corpus: str, retriever: str, sizes: Sequence[int], options: argparse.Namespace) -> list[dict[str, Figure]]:
    """Return a row for each size of batch."""
    settings = Settings(corpora=(corpus,), retrievers=(retriever,), port=0, limits=Limits(drain_s=0.0))
    questions = list(islice(cycle(load_questions(options.questions, corpus)), (options.searches + _WARM_UP) * max(sizes)))
    rows = list[dict[str, Figure]]()
    metrics = Metrics()
    shards = RecordingService(settings, Layout(shards=options.shards, replicas=1), metrics)
    try:
        with (
            serve(settings, metrics, shards) as url,
            serve(settings, Metrics(), None) as plain,
            RemoteSearcher(url) as remote,
            RemoteSearcher(plain) as single,
        ):
            for size in sizes:
                batches = [questions[first : first + size] for first in range(0, (options.searches + _WARM_UP) * size, size)]
                first = time_retriever(shards.opener(corpus, retriever.split("+")[-1], open_store(corpus), device="cpu"), batches, shards)
                sharded_times, plain_times = (
                    time_requests(remote, batches, options.k, shards),
                    time_requests(single, batches, options.k, None),
                )
                rows.append(
                    {
                        "retriever": retriever,
                        "questions": size,
                        "called, beyond slowest shard, p50 ms": percentile(first, 0.5),
                        "p90 ": percentile(first, 0.9),
                        "retriever beyond slowest shard, p50 ms": percentile(sharded_times.retriever, 0.5),
                        "p90": percentile(sharded_times.retriever, 0.9),
                        "request beyond slowest shard, p50 ms": percentile(sharded_times.overhead, 0.5),
                        "request, p50 ms": percentile(sharded_times.requests, 0.5),
                        "one searcher, request, p50 ms": percentile(plain_times.requests, 0.5),
                        **check_equal(sharded_times.rankings, plain_times.rankings),
                    }
                )
    finally:
        shards.stop()
    return rows


def load_questions(file: Path | None, corpus: str) -> list[str]:
    """Return the questions of a file; without one, ten words of each of 1,000 random passages."""
    if file is not None:
        return [question.text for question in read_questions(file)]
    store = open_store(corpus)
    rows = np.random.default_rng(1).integers(0, len(store), _N_DRAWN)
    return [" ".join(passage.text.split()[8:18]) for passage in store.get_many(rows)]


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ray serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", help="a built corpus")
    parser.add_argument("--retriever", nargs="+", default=["minilm"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 32], help="number of questions per request")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--questions", type=Path, help="questions in any format that idx run reads; default: words of passages")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    sys.setswitchinterval(_SWITCH_S)
    with start_cluster(options.shards) as address, connect(address):
        rows = [row for name in options.retriever for row in measure(options.corpus, name, options.batch, options)]
    title = f"{options.corpus}: {options.shards} shards on one machine, k {options.k}, depth 100"
    print_table(title, rows, environment("ray", "numpy", "numba"), options.json)

"""Time that a cluster of shards adds to a search, beyond the time of the slowest shard.

    python -m benchmarks.ray serving sample                               # a built corpus, by minilm
    python -m benchmarks.ray serving sample --retriever minilm bm25+minilm --batch 1 32 --questions FILE

The cluster is three nodes on this machine, each a Ray process, with one process for each shard: shards that would have a machine each share
its CPUs here, and the figures include their waiting for one another. The time of the slowest shard, which it measures itself, is
subtracted from the time of each search.

called         calling all shards, receiving their answers and merging, in a process that does nothing else (for retrievers joined with
               +, the last one)
first stage    the same in a server, with its other threads and the client in one process: the value of ``idx_shard_overhead_seconds``
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

from benchmarks.report import Figure, circumstances, show
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.cluster.nodes import connected, load_ray
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking, Retriever
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.cluster.service import Layout, ShardService
from wikidx.retrievers.errors import ServiceError
from wikidx.retrievers.opening import OpenRetriever
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, url_of
from wikidx.runtimes.questions.reading import read_questions

_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
_WARM_UP = 20
_N_DRAWN = 1_000
_SWITCH_S = 5e-5  # as in ``Service`` with a process of its own; here the client shares the process

Times = list[float]


class Watched(ShardService):
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

    def observe(self, slowest_s: float, beyond_s: float) -> None:
        """Record a search."""
        self.noted.append((slowest_s, beyond_s))
        super().observe(slowest_s, beyond_s)


class Measured(NamedTuple):
    """Seconds of each request; of these the part beyond the slowest shard; of that the retriever's part; and the results."""

    requests: Times
    beyond: Times
    first_stage: Times
    rankings: list[Ranking]


@contextmanager
def cluster_of(n_nodes: int) -> Iterator[str]:
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
def running(settings: Settings, metrics: Metrics, shards: ShardService | None) -> Iterator[str]:
    """Serve in a thread; yield the address."""
    listening = listen(settings)
    service = Service(settings, listening, metrics, shards)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(service.run)
        try:
            with RemoteSearcher(url_of(listening), timeout=600) as remote:
                while not is_open(remote):
                    if run.done():
                        run.result()  # raises the server's exception
                    time.sleep(0.1)
            yield url_of(listening)
        finally:
            service.stop()


def is_open(remote: RemoteSearcher) -> bool:
    """Return whether a server answers searches."""
    try:
        remote.search(["until it is open"])
    except ServiceError:
        return False
    return True


def timed(remote: RemoteSearcher, batches: Sequence[Sequence[str]], k: int, shards: Watched | None) -> Measured:
    """Search for one batch after the other; without shards nothing is subtracted."""
    found = Measured([], [], [], [])
    for number, batch in enumerate(batches):
        if shards is not None:
            shards.noted.clear()
        started = time.perf_counter()
        rankings = remote.search(batch, SearchOptions(k=k))
        seconds = time.perf_counter() - started
        slowest_s, beyond_s = shards.noted[0] if shards is not None and shards.noted else (0.0, 0.0)  # BM25 is not sharded
        found.rankings.extend(rankings)
        if number >= _WARM_UP:
            found.requests.append(seconds)
            found.beyond.append(seconds - slowest_s)
            found.first_stage.append(beyond_s)
    return found


def same(found: Sequence[Ranking], expected: Sequence[Ranking]) -> dict[str, Figure]:
    """Compare rankings of the same questions."""
    pairs = list(zip(found, expected, strict=True))
    alike = [(there, here) for there, here in pairs if [hit.row for hit in there] == [hit.row for hit in here]]
    differences = [abs(one.score - other.score) for there, here in alike for one, other in zip(there, here, strict=True)]
    return {"same %": 100 * len(alike) / len(pairs), "of": len(pairs), "score difference": max(differences, default=0.0)}


def called(stage: Retriever, batches: Sequence[Sequence[str]], shards: Watched) -> Times:
    """Return the seconds of each search beyond its slowest shard if only the retriever is called, by the only busy thread."""
    shards.noted.clear()
    for batch in batches:
        stage.retrieve(batch, SearchOptions().depth)
    return [beyond_s for _, beyond_s in shards.noted[_WARM_UP:]]


def percentile(times: Times, share: float) -> float:
    """Return a percentile of the times, in milliseconds."""
    return 1e3 * sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


def measure(corpus: str, retriever: str, sizes: Sequence[int], options: argparse.Namespace) -> list[dict[str, Figure]]:
    """Return a row for each size of batch."""
    settings = Settings(corpora=(corpus,), retrievers=(retriever,), port=0, limits=Limits(linger_s=0.0))
    questions = list(islice(cycle(asked(options.questions, corpus)), (options.searches + _WARM_UP) * max(sizes)))
    rows = list[dict[str, Figure]]()
    metrics = Metrics()
    shards = Watched(settings, Layout(shards=options.shards, replicas=1), metrics)
    try:
        with (
            running(settings, metrics, shards) as url,
            running(settings, Metrics(), None) as plain,
            RemoteSearcher(url) as remote,
            RemoteSearcher(plain) as single,
        ):
            for size in sizes:
                batches = [questions[first : first + size] for first in range(0, (options.searches + _WARM_UP) * size, size)]
                first = called(shards.opener(corpus, retriever.split("+")[-1], open_store(corpus), device="cpu"), batches, shards)
                whole, one = timed(remote, batches, options.k, shards), timed(single, batches, options.k, None)
                rows.append(
                    {
                        "retriever": retriever,
                        "questions": size,
                        "called, beyond slowest shard, p50 ms": percentile(first, 0.5),
                        "p90 ": percentile(first, 0.9),
                        "first stage beyond slowest shard, p50 ms": percentile(whole.first_stage, 0.5),
                        "p90": percentile(whole.first_stage, 0.9),
                        "request beyond slowest shard, p50 ms": percentile(whole.beyond, 0.5),
                        "request, p50 ms": percentile(whole.requests, 0.5),
                        "one searcher, request, p50 ms": percentile(one.requests, 0.5),
                        **same(whole.rankings, one.rankings),
                    }
                )
    finally:
        shards.stop()
    return rows


def asked(file: Path | None, corpus: str) -> list[str]:
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
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 32], help="questions of a request")
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--questions", type=Path, help="in any format that idx run reads; otherwise words of passages")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    sys.setswitchinterval(_SWITCH_S)
    with cluster_of(options.shards) as address, connected(address):
        rows = [row for name in options.retriever for row in measure(options.corpus, name, options.batch, options)]
    title = f"{options.corpus}: {options.shards} shards on one machine, k {options.k}, depth 100"
    show(title, rows, circumstances("ray", "numpy", "numba"), options.json)

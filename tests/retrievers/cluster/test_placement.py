"""Placement of shards, routing of calls to one of several processes, and shared state."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

from tests.conftest import ROOT
from wikidx.base.errors import InputError
from wikidx.base.machine.threads import limit_threads, n_threads
from wikidx.indexer.embedding.cluster.nodes import Node
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.cluster import service
from wikidx.retrievers.cluster.identity import IndexIdentity
from wikidx.retrievers.cluster.placement import check_device, needs_gpus, place_replicas
from wikidx.retrievers.cluster.replicas import Replica, ReplicatedShard
from wikidx.retrievers.cluster.shard import ShardRange
from wikidx.retrievers.errors import ShardUnavailable
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.server.batcher import SearchRequest, _search_batch
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

A, B, C = Node("a", "10.0.0.1:1", 8, 4), Node("b", "10.0.0.2:1", 8, 1), Node("c", "10.0.0.3:1", 8, 0)


def test_replicas_are_on_different_nodes_and_nodes_have_about_as_many() -> None:
    found = place_replicas(4, 2, [A, B, C], [], on_gpus=False)
    assert all(len(set(chosen)) == 2 for chosen in found)
    assert sorted(Counter(node.id for chosen in found for node in chosen).values()) == [2, 3, 3]
    assert place_replicas(1, 2, [A], [], on_gpus=False) == [[A, A]]


def test_gpus_are_given_once_and_those_of_what_is_served_not_at_all() -> None:
    found = place_replicas(5, 1, [A, B, C], [], on_gpus=True)
    assert Counter(node.id for chosen in found for node in chosen) == {"a": 4, "b": 1}
    assert place_replicas(2, 1, [A, B], [A, A, B], on_gpus=True) == [[A], [A]]
    with pytest.raises(InputError, match=r"3 processes need a GPU each besides the 3 that serve, 2 are free: .* with twice the GPUs"):
        place_replicas(3, 1, [A, B], [A, A, B], on_gpus=True)


@pytest.mark.parametrize(("device", "n", "expected"), [("auto", 5, True), ("auto", 6, False), ("cpu", 1, False), ("cuda", 5, True)])
def test_gpus_are_used_if_there_are_enough(device: str, n: int, expected: bool) -> None:
    assert needs_gpus(device, [A, B, C], n) is expected


@pytest.mark.parametrize(
    ("device", "n_shards", "expected"), [("auto", 5, "auto"), ("cuda", 5, "cuda"), ("auto", 6, "cpu"), ("cpu", 1, "cpu")]
)
def test_a_shard_decides_by_the_device_that_was_asked_for(
    device: str, n_shards: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With "auto" it stays on the processors where FAISS has no GPUs or the vectors do not fit. Ray's nodes and actors are replaced."""
    started = list[tuple[str, float]]()

    def start(shard_ranges: list[ShardRange], node: Node, *, n_gpus: float, **_: object) -> None:
        started.extend((one.device, n_gpus) for one in shard_ranges)

    monkeypatch.setattr(service, "usable_nodes", lambda: [A, B, C])
    monkeypatch.setattr(service, "start_actor", start)
    shards = service.ShardService(Settings(corpora=("made",), device=device), service.Layout(shards=n_shards), Metrics())
    shards._start({("made", "minilm"): IndexIdentity("", "", "", n_rows=100)})
    assert started == [(expected, float(expected != "cpu"))] * n_shards


def test_gpus_that_are_not_there_and_those_with_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"--device cuda: 6 processes \(shards times replicas\) need a GPU each, the Ray cluster has 5"):
        needs_gpus("cuda", [A, B, C], 6)
    for device in ("cuda:1", "all", "mps"):
        with pytest.raises(InputError, match=f"--device {device} with --ray: use auto, cpu or cuda"):
            check_device(device)


def test_replicas_are_asked_in_turn_but_for_those_that_are_lost_or_were_asked() -> None:
    replicas = [Replica(number, A, None, is_ready=number != 1) for number in range(3)]
    shard = ReplicatedShard(0, [], replicas, 30.0, Metrics())
    assert {shard.next_replica([]) for _ in range(6)} == {replicas[0], replicas[2]}
    assert {shard.next_replica([replicas[0]]) for _ in range(6)} == {replicas[2]}
    assert shard.next_replica([replicas[0], replicas[2]]) is None


def test_what_is_lost_or_unavailable_is_counted() -> None:
    metrics = Metrics()
    replica = Replica(0, A, None, is_ready=True)
    shard = ReplicatedShard(0, [], [replica], 30.0, metrics)
    shard.mark_lost(replica)
    shard.unavailable_error("it is lost")
    assert not replica.is_ready
    assert 'idx_shard_failures_total{shard="0"} 1.0\n' in metrics.text().decode()
    assert 'idx_shard_unavailable_total{shard="0"} 1.0\n' in metrics.text().decode()


def test_actors_on_a_node_share_its_processors() -> None:
    code = (
        "import os\nfrom wikidx.retrievers.cluster.shard import ShardActor\nfrom wikidx.base.machine.threads import n_threads\n"
        "all_of_them = n_threads()\nShardActor([], '/nowhere', all_of_them)\n"
        "print(all_of_them, n_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == [str(n_threads()), "1", "1"], done.stderr


def test_threads_are_no_more_than_processors() -> None:
    n = n_threads()
    try:
        limit_threads(n + 5)
        assert n_threads() == n
        limit_threads(1)
        assert n_threads() == 1
    finally:
        limit_threads(None)
    assert n_threads() == n


class Unavailable:
    """A searcher whose shard is lost."""

    def __init__(self) -> None:
        self.n_asked = 0

    def search(self, queries: list[str], options: SearchOptions) -> list[Ranking]:
        return self.search_groups([[query] for query in queries], options)

    def search_groups(self, groups: list[list[str]], options: SearchOptions) -> list[Ranking]:
        self.n_asked += 1
        raise ShardUnavailable("shard 1 is lost")


def test_searches_that_were_joined_wait_once_for_a_lost_shard() -> None:
    async def outcomes() -> list[object]:
        def search() -> SearchRequest:
            answer = asyncio.get_running_loop().create_future()
            return SearchRequest(("made", "bm25"), searcher, [["river"]], SearchOptions(), 0.0, answer)  # type: ignore[arg-type]

        return list(_search_batch([search(), search(), search()]))

    searcher = Unavailable()
    found = asyncio.run(outcomes())
    assert [str(one) for one in found] == ["shard 1 is lost"] * 3
    assert searcher.n_asked == 1

"""Where shards go, whom of several processes a call is given to, and what they share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

from corpora.errors import InputError
from indexer.base import limit_threads, n_threads
from indexer.cluster.nodes import Node
from retrievers.base import Ranking
from retrievers.cluster.placing import check_device, device_of, placed
from retrievers.cluster.replicas import Health, Replica, ReplicatedShard
from retrievers.errors import ShardUnavailable
from retrievers.options import SearchOptions
from retrievers.server.batcher import _outcomes
from retrievers.server.cost import Kind
from retrievers.server.joining import Search
from tests.conftest import ROOT

A, B, C = Node("a", "10.0.0.1:1", 8, 4), Node("b", "10.0.0.2:1", 8, 1), Node("c", "10.0.0.3:1", 8, 0)


def test_replicas_are_on_different_nodes_and_nodes_have_about_as_many() -> None:
    found = placed(4, 2, [A, B, C], [], on_gpus=False)
    assert all(len(set(chosen)) == 2 for chosen in found)
    assert sorted(Counter(node.id for chosen in found for node in chosen).values()) == [2, 3, 3]
    assert placed(1, 2, [A], [], on_gpus=False) == [[A, A]]


def test_gpus_are_given_once_and_those_of_what_is_served_not_at_all() -> None:
    found = placed(5, 1, [A, B, C], [], on_gpus=True)
    assert Counter(node.id for chosen in found for node in chosen) == {"a": 4, "b": 1}
    assert placed(2, 1, [A, B], [A, A, B], on_gpus=True) == [[A], [A]]
    with pytest.raises(InputError, match=r"3 processes need a GPU each beside the 3 that serve, 2 are free: .* with twice the GPUs"):
        placed(3, 1, [A, B], [A, A, B], on_gpus=True)


@pytest.mark.parametrize(
    ("device", "n", "has_vectors", "expected"),
    [("auto", 5, True, "cuda"), ("auto", 6, True, "cpu"), ("auto", 1, False, "cpu"), ("cpu", 1, True, "cpu"), ("cuda", 5, True, "cuda")],
)
def test_gpus_are_used_if_there_are_enough(device: str, n: int, has_vectors: bool, expected: str) -> None:
    assert device_of(device, [A, B, C], n, has_vectors=has_vectors) == expected


def test_gpus_that_are_not_there_and_those_with_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"--device cuda: 6 processes \(shards times replicas\) need a GPU each, the Ray cluster has 5"):
        device_of("cuda", [A, B, C], 6, has_vectors=True)
    for device in ("cuda:1", "all", "mps"):
        with pytest.raises(InputError, match=f"--device {device} with --ray: say auto, cpu or cuda"):
            check_device(device)


def shard_of(*health: Health) -> ReplicatedShard:
    return ReplicatedShard(0, [], [Replica(number, A, None, one) for number, one in enumerate(health)], 30.0)


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ((Health.LATE, Health.READY), [1, 0, None]),
        ((Health.LATE, Health.LOST), [0, None]),
        ((Health.LOST, Health.LOST), [None]),
    ],
)
def test_who_is_late_is_asked_if_nobody_else_can_be(health: tuple[Health, ...], expected: list[int | None]) -> None:
    shard, asked = shard_of(*health), list[Replica]()
    for number in expected:
        found = shard.next_replica(asked)
        assert (None if found is None else found.number) == number
        asked += [] if found is None else [found]


def test_what_is_counted_is_counted_once() -> None:
    shard = shard_of(Health.READY)
    replica = shard.next_replica([])
    assert replica is not None
    shard.done(replica, is_lost=True)
    shard.unavailable("it is lost")
    counts, later = shard.take_counts(), shard.take_counts()
    assert (counts.n_failed, counts.n_unavailable, replica.health) == (1, 1, Health.LOST)
    assert (later.n_failed, later.n_unavailable) == (0, 0)


def test_actors_on_a_node_share_its_processors() -> None:
    code = (
        "import os\nfrom retrievers.cluster.replicas import ShardActor\nfrom indexer.base import n_threads\n"
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
        def search() -> Search:
            answer = asyncio.get_running_loop().create_future()
            return Search(("made", "bm25"), searcher, [["river"]], SearchOptions(), 1, 0.0, answer, Kind())  # type: ignore[arg-type]

        return list(_outcomes([search(), search(), search()]))

    searcher = Unavailable()
    found = asyncio.run(outcomes())
    assert [str(one) for one in found] == ["shard 1 is lost"] * 3
    assert searcher.n_asked == 1

"""Shards on a local Ray cluster of three nodes: the same answers over HTTP while replicas die, shards are lost, indexes are exchanged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import corpus_of
from tests.contracts.test_client import (  # noqa: F401 - the suite of all clients, here with this file's fixtures
    RETRIEVERS,
    N,
    Searchers,
    all_kinds,
    bits,
    searcher,
    test_a_group_that_cannot_be_searched_costs_only_itself,
    test_bm25_is_the_same_to_the_bit,
    test_nothing_asked_and_nothing_found,
    test_parameters_are_each_requests_own,
    test_passages_come_back_as_they_are_found_or_by_their_ids,
    test_search_r1_s_calls_are_answered_in_the_form_of_its_server,
    test_searches_by_others_are_the_same_up_to_rounding,
    test_threads_get_their_own_answers,
    test_what_cannot_be_searched_raises_the_same,
)
from tests.indexer.cluster.ray_nodes import NODE, cluster_of
from tests.indexer.made_vectors import clustered, put_vectors
from tests.retrievers.cluster.sharded_server import Load, Results, Sharded, is_running, search_all, serving_shards, stopped
from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import ask, wait_until
from tests.runtimes.test_serve import idx_serve
from wikidx.base.cluster import connect, list_nodes, load_ray
from wikidx.base.errors import ArtifactMismatch, ArtifactMissing, IdxError, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index
from wikidx.indexer.catalog import index_ref
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Searcher, UnsearchedRows
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.cluster.service import ShardService, open_replicas
from wikidx.retrievers.cluster.shard import Index, IndexIdentity, ShardActor, ShardRange, index_identity
from wikidx.retrievers.cluster.sharded import Replica, Shard, ShardCalls
from wikidx.retrievers.errors import DeadlineExceeded, ShardUnavailable
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three nodes, which this process is connected to, and a home with a corpus."""
    with at_home(tmp_path_factory.mktemp("sharded")), cluster_of(3) as found:
        build_corpus("made", some_passages(N), "bm25", "bm25-1.2-0.75", "minilm", "minilm-ivf")
        with connect(found.address):
            yield found


@pytest.fixture(autouse=True)
def home(cluster: Any) -> None:  # noqa: ANN401
    """The module's home, not one of each test's own."""


@pytest.fixture(scope="module")
def sharded(cluster: Any) -> Iterator[Sharded]:  # noqa: ANN401
    with serving_shards(*RETRIEVERS, shards=3, replicas=2) as found:
        yield found


@pytest.fixture(scope="module")
def searchers(sharded: Sharded) -> Searchers:
    return all_kinds(sharded.url, RETRIEVERS)


def test_replicas_are_on_different_nodes_with_processors_and_nodes_have_as_many(sharded: Sharded) -> None:
    found = [{replica["node"] for replica in sharded.replicas(shard)} for shard in range(3)]
    assert Counter(node for nodes in found for node in nodes) == {node.address: 2 for node in list_nodes(usable=True)}


def test_a_replica_that_hangs_or_is_killed_under_load_loses_no_request(sharded: Sharded) -> None:
    expected = search_all(open_searcher("made", "minilm"))
    with Load(sharded.url, lambda found: found == expected) as load, stopped(sharded.process(0)):
        wait_until(lambda: sharded.replicas(0)[0]["state"] == "lost", 20)
        load.wait_for(40)
    assert not load.failures
    with Load(sharded.url, lambda found: found == expected) as load:
        load.wait_for(40)
        for shard in (0, 2):
            os.kill(sharded.process(shard), signal.SIGKILL)
            load.wait_for(100)
    assert not load.failures
    wait_until(lambda: all(replica["state"] == "ready" for shard in range(3) for replica in sharded.replicas(shard)), 60)
    text = ask(sharded.url, "/metrics").body.decode()
    assert 'idx_shard_replicas{shard="2"} 2.0' in text
    assert "idx_shard_overhead_seconds_count " in text


def rows_of(asked: Searcher) -> list[int]:
    return [hit.row for hit in asked.search(["river"], SearchOptions(k=N))[0]]


def test_a_lost_shard_is_a_503_or_told_and_a_new_generation_heals_it(cluster: Any) -> None:  # noqa: ANN401
    with (
        serving_shards("minilm", "bm25+minilm", "bm25", shards=3, replicas=1) as sharded,
        RemoteSearcher(sharded.url, retries=0) as remote,
        RemoteSearcher(sharded.url, retriever="bm25", retries=0) as words,
    ):
        whole = remote.search_partial([["river"]], SearchOptions(k=N))
        assert whole.unsearched_rows == []
        assert [hit.row for hit in whole.rankings[0]] == rows_of(open_searcher("made", "minilm"))
        with stopped(sharded.process(1)):
            with pytest.raises(ShardUnavailable, match=r"shard 1 \(rows 53 to 105 of 'made/minilm'.*partial=true") as caught:
                remote.search(["river"])
            assert (caught.value.status, caught.value.retry_after) == (503, 2)
            found = remote.search_partial([["river"]], SearchOptions(k=N))
            assert found.unsearched_rows == [UnsearchedRows("minilm", 53, 106)]
            left = [hit for hit in whole.rankings[0] if hit.row not in range(53, 106)]
            assert [(hit.row, hit.score) for hit in found.rankings[0]] == [(hit.row, hit.score) for hit in left]
            body = {"queries": ["river"], "timeout_s": 2.0}
            assert "shard 1" in ask(sharded.url, "/v1/search", body).json["error"]
            body = {"queries": ["river"], "retriever": "bm25+minilm", "partial": True, "rerank": "primary"}
            assert {rows["index"] for rows in ask(sharded.url, "/v1/search", body).json["unsearched_rows"]} == {"minilm"}
            assert bits(words.search(["river"])) == bits(open_searcher("made").search(["river"]))  # which no shard has a part in
            wait_until(lambda: ask(sharded.url, "/ready").status == 503, 20)
            assert [shard["ready"] for shard in ask(sharded.url, "/ready").json["shards"]] == [True, False, True]
            sharded.service.reload()
            wait_until(lambda: ask(sharded.url, "/ready").status == 200, 20)
            assert rows_of(remote) == [hit.row for hit in whole.rankings[0]]


@pytest.mark.exhaustive
def test_a_new_index_is_served_without_a_failed_request(cluster: Any) -> None:  # noqa: ANN401
    corpus = "exchanged"

    def build(passages: list[Passage], options: StoreOptions) -> Results:
        build_store(corpus_of(passages, corpus), options)
        store = open_store(corpus)
        shutil.rmtree(index_ref(corpus, "minilm").path, ignore_errors=True)
        put_vectors(store, clustered(len(store), 384, seed=len(store)), corpus=corpus)
        build_index(corpus, "bm25", store, force=True)
        return search_all(open_searcher(corpus, "minilm"))

    new: Results | None = None
    old = build(some_passages(N), StoreOptions())
    with serving_shards("minilm", "bm25", shards=3, replicas=1, corpus=corpus) as sharded:
        with Load(sharded.url, lambda found: found in (old, new)) as load:
            load.wait_for(40)
            new = build(some_passages(2 * N)[::-1], StoreOptions(replace=True, rebuild=True))
            load.wait_for(40)
            assert ask(sharded.url, "/v1/indexes").json["corpora"][0]["replaced"]
            sharded.service.reload()
            load.wait_for(40)
        assert not load.failures
        assert not ask(sharded.url, "/v1/indexes").json["corpora"][0]["replaced"]
        with RemoteSearcher(sharded.url) as remote, RemoteSearcher(sharded.url, retriever="bm25") as words:
            assert search_all(remote) == new != old
            assert bits(words.search(["river"])) == bits(open_searcher(corpus).search(["river"]))


def test_what_cannot_be_opened_leaves_what_is_served(sharded: Sharded, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = [sharded.process(shard, replica) for shard in range(3) for replica in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp("empty")))
        with pytest.raises(IdxError, match="nothing is built at"):
            sharded.service.reload()
    assert [replica["process"] for shard in range(3) for replica in sharded.replicas(shard)] == before
    assert ask(sharded.url, "/v1/search", {"queries": ["river"]}).status == 200


def refusal(identity: IndexIdentity, home: str) -> IdxError:
    """Return the error of a process that cannot open its range."""
    actor = load_ray().remote(concurrency_groups={"state": 1})(ShardActor)
    handle = actor.remote([ShardRange(("made", "minilm"), identity, range(20), "cpu")], home, 1)
    with pytest.raises(IdxError) as caught:
        open_replicas([Shard(4, {}, [Replica(handle)])], threading.Event())
    load_ray().kill(handle)
    return caught.value


def test_what_a_node_cannot_open_is_refused(cluster: Any, tmp_path: Path) -> None:  # noqa: ANN401
    identity, home = index_identity("made", "minilm"), os.environ["IDX_HOME"]
    other = refusal(identity._replace(files="1" * 64), home)
    assert isinstance(other, ArtifactMismatch)
    assert re.search(r"shard 4 on node [\d.]+:\d+: .* is not the served index", str(other))
    missing = refusal(identity, str(tmp_path))
    assert isinstance(missing, ArtifactMissing)
    assert re.search(r"shard 4 on node [\d.]+:\d+: nothing is built at .*: let all nodes see the same data home", str(missing))


@pytest.mark.parametrize(
    ("device", "n_shards", "message"),
    [
        ("cpu", N + 1, f"'minilm' of 'made' has {N} rows: it cannot be cut into {N + 1} shards"),
        ("cuda:1", 2, "--device cuda:1 with --ray: use auto, cpu or cuda"),
        ("cuda", 2, r"2 processes \(shards times replicas\) need a GPU each, 0 of the Ray cluster are free"),
    ],
)
def test_shards_that_cannot_be_are_refused(cluster: Any, device: str, n_shards: int, message: str) -> None:  # noqa: ANN401
    settings = Settings(corpora=("made",), retrievers=("minilm",), device=device)
    with pytest.raises(InputError, match=message):
        ShardService(settings, Metrics(), n_shards).exchange().__enter__()


@pytest.mark.exhaustive
def test_shards_of_another_store_are_not_opened_and_the_end_ends_all(cluster: Any) -> None:  # noqa: ANN401
    shards = ShardService(Settings(corpora=("made",), retrievers=("minilm",)), Metrics())
    assert shards.n_shards == 3  # the head has no processors
    for _ in range(2):
        with shards.exchange() as opener:
            build_store(corpus_of(some_passages(N)[::-1], "other"), StoreOptions())
            with pytest.raises(ArtifactMismatch, match=r"the passages of 'made' are \S+, the shards of 'minilm' are of"):
                opener("made", "minilm", open_store("other"), device="cpu")
    try:
        wait_until(lambda: all("process" in replica for shard in shards.describe() for replica in shard["replicas"]), 20)
        processes = [replica["process"] for shard in shards.describe() for replica in shard["replicas"]]
    finally:
        shards.stop()
    wait_until(lambda: not any(map(is_running, processes)), 20)
    with pytest.raises(IdxError, match="is being ended"), shards.exchange():
        pass


@pytest.mark.exhaustive
def test_a_shard_that_cannot_be_opened_again_is_lost_until_it_can_and_moves_with_its_node(cluster: Any) -> None:  # noqa: ANN401
    place = index_ref("made", "minilm").path
    with serving_shards("minilm", shards=3, replicas=1) as sharded, RemoteSearcher(sharded.url, retries=0) as remote:
        expected = search_all(remote)
        place.rename(place.with_name("away"))
        try:
            os.kill(sharded.process(1), signal.SIGKILL)
            wait_until(lambda: ask(sharded.url, "/ready").status == 503, 60)
            with pytest.raises(ShardUnavailable, match="shard 1"):
                remote.search(["river"])
        finally:
            place.with_name("away").rename(place)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 60)
        assert search_all(remote) == expected
        before = sharded.replicas(1)[0]["node"]
        cluster.remove_node(next(node for node in cluster.worker_nodes if f"{node.node_ip_address}:{node.node_manager_port}" == before))
        wait_until(lambda: sharded.replicas(1)[0]["node"] not in ("unknown", before), 120)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 60)
        assert search_all(remote) == expected
        cluster.add_node(**NODE)


class Slow:
    """An actor that takes its time."""

    n_calls = 0

    def call(self, method: str, index: Index, seconds: int) -> tuple[int, float]:
        self.n_calls += 1
        time.sleep(seconds)
        return seconds, 0.0

    def count(self) -> int:
        return self.n_calls


def test_a_call_that_is_given_up_does_not_take_the_place_of_another(cluster: Any) -> None:  # noqa: ANN401
    ray = load_ray()
    actor = ray.remote(num_cpus=0, max_concurrency=2, concurrency_groups={"state": 1})(Slow).remote()
    count = actor.count.options(concurrency_group="state")
    assert ray.get(count.remote()) == 0
    index = "made", "minilm"
    shard = Shard(0, {index: ShardRange(index, index_identity(*index), range(N), "cpu")}, [Replica(actor, is_ready=True)])

    def answers(seconds: int) -> dict[Shard, tuple[int, float]]:
        return ShardCalls("sleep", index, {shard: (seconds,)}, 20.0, Metrics()).answers()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(answers, 4), threads.submit(answers, 4)
        wait_until(lambda: ray.get(count.remote()) == 2, 10)
        for _ in range(3):
            with cancellation_scope(deadline=time.monotonic() + 0.4), pytest.raises(ShardUnavailable, match=r"no answer within 0.3"):
                answers(4)
        with cancellation_scope(lambda: True), pytest.raises(DeadlineExceeded, match="nobody waits"):
            answers(4)
        assert answers(0) == {shard: (0, 0.0)}
        assert ray.get(count.remote()) == 3
        assert first.result() == second.result() == {shard: (4, 0.0)}
    ray.kill(actor)


def test_the_command_serves_from_a_cluster(cluster: Any) -> None:  # noqa: ANN401
    options = ("--retriever", "minilm", "--ray", cluster.address, "--shards", 2, "--replicas", 1, "--no-access-log")
    with idx_serve("made", *options) as served:
        with RemoteSearcher(served.url) as remote:
            assert rows_of(remote) == rows_of(open_searcher("made", "minilm"))
        assert ask(served.url, "/ready").json["shards"][0]["replicas"][0]["node"] in [node.address for node in list_nodes()]
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the current indexes are served\n" in served.said, 60)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) == 0

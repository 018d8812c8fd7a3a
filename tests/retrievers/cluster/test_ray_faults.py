"""Faults of shards on a Ray cluster and of their exchange: hanging processes, missing files, a reload too early."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.conftest import corpus_of
from tests.indexer.cluster.ray_nodes import cluster_of
from tests.indexer.made_vectors import clustered, put_vectors
from tests.retrievers.cluster.sharded_server import LIMITS, Load, Sharded, is_running, search_all, serving_shards, stopped
from tests.retrievers.server.conftest import some_passages
from tests.retrievers.server.serving import ask, send_raw, wait_until
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.embedding.cluster.nodes import connect, list_nodes
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.cancellation import cancellation_scope
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.cluster.replicas import Replica, ReplicatedShard
from wikidx.retrievers.cluster.service import Layout, ShardService
from wikidx.retrievers.cluster.shard import ShardSearch, TimedAnswer
from wikidx.retrievers.errors import DeadlineExceeded, ShardUnavailable
from wikidx.retrievers.opening import OpenRetriever, open_searcher
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytest.importorskip("torch", reason="needs the extra 'dense'")

N = 60
BODY = {"queries": ["river number 7"], "k": 20}

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head without processors and two nodes, which this process is connected to, and a home with a corpus."""
    with pytest.MonkeyPatch.context() as patch, cluster_of(2) as found:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp("faults")))
        build("made", some_passages(N))
        with connect(found.address):
            yield found


@pytest.fixture(autouse=True)
def home(cluster: Any) -> None:  # noqa: ANN401
    """The module's home, not one of each test's own."""


def build(corpus: str, passages: list[Passage]) -> None:
    build_store(corpus_of(passages, corpus), StoreOptions(replace=True, rebuild=True))
    put_vectors(open_store(corpus), clustered(len(passages), 384, seed=1), corpus=corpus)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.monotonic()
    return call(), time.monotonic() - started


def states(sharded: Sharded, shard: int) -> list[str]:
    return [replica["state"] for replica in sharded.replicas(shard)]


def service(*, corpus: str = "made", device: str = "auto") -> ShardService:
    settings = Settings(corpora=(corpus,), retrievers=("minilm",), limits=LIMITS, device=device)
    return ShardService(settings, Layout(shards=2), Metrics())


def shard_processes() -> set[int]:
    """Return the processes of shards that this process's cluster runs."""
    found, left = set[int](), [os.getpid()]
    while left:
        process = left.pop()
        try:
            if b"ShardActor" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.add(process)
            left += [int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()]
        except OSError:  # it has ended
            continue
    return found


def test_a_shard_that_hangs_is_a_503_or_told_in_time_and_counted() -> None:
    with serving_shards("minilm", shards=2, replicas=1) as sharded:
        with stopped(sharded.process(1)):
            started = time.monotonic()
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", {**BODY, "partial": True, "timeout_s": 2.0}))
            assert answer.json["unsearched_rows"] == [{"index": "minilm", "first_row": 30, "stop_row": 60}]
            assert seconds < 2.0
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", {**BODY, "timeout_s": 2.0}))
            assert (answer.status, answer.json["error_type"]) == (503, "ShardUnavailable")
            assert "there was no answer within 1." in answer.json["error"]
            answer = ask(sharded.url, "/v1/search", {**BODY, "timeout_s": 19.0})  # it is given up once it counts as lost
            assert (answer.status, "no longer reports its state" in answer.json["error"]) == (503, True)
            assert time.monotonic() - started < 15.0
            assert (states(sharded, 1), states(sharded, 0)) == (["lost"], ["ready"])
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", BODY))
            assert (answer.status, seconds < 1.0) == (503, True)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 20)
        with RemoteSearcher(sharded.url) as remote:
            assert search_all(remote) == search_all(open_searcher("made", "minilm"))
        for _ in range(2):  # it is counted once, not again whenever shards are looked at
            time.sleep(2.0)
            text = ask(sharded.url, "/metrics").body.decode()
            assert 'idx_shard_unavailable_total{shard="1"} 4.0\n' in text
            assert 'idx_shard_failures_total{shard="1"}' not in text  # to be slow is not to fail


def test_a_replica_that_hangs_loses_no_request_and_is_asked_again() -> None:
    expected = search_all(open_searcher("made", "minilm"))
    with serving_shards("minilm", shards=2, replicas=2) as sharded:
        with Load(sharded.url, lambda found: found == expected) as load:
            with stopped(sharded.process(0)):
                load.wait_for(40)
                wait_until(lambda: states(sharded, 0) == ["lost", "ready"], 20)
                load.wait_for(40)
            wait_until(lambda: states(sharded, 0) == ["ready", "ready"], 20)
        assert not load.failures


def test_nobody_waits_for_a_shard_in_vain() -> None:
    with serving_shards("minilm", shards=2, replicas=1) as sharded, stopped(sharded.process(1)):
        body = orjson.dumps({**BODY, "timeout_s": 19.0})
        head = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        with pytest.raises(TimeoutError):
            send_raw(sharded.url, head + body, timeout_s=0.5)
        answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", {**BODY, "partial": True, "timeout_s": 3.0}))
        assert answer.json["unsearched_rows"] == [{"index": "minilm", "first_row": 30, "stop_row": 60}]
        assert seconds < 3.0


class Slow:
    """An actor that takes its time."""

    def __init__(self) -> None:
        self.n_searches = 0

    def search(self, asked: ShardSearch) -> TimedAnswer[Hits]:
        self.n_searches += 1
        time.sleep(asked.k)
        return TimedAnswer(Hits(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32)), 0.0)

    def count(self) -> int:
        return self.n_searches


def test_a_call_that_is_given_up_does_not_take_the_place_of_another() -> None:
    actor = ray.remote(num_cpus=0, max_concurrency=2, concurrency_groups={"state": 1})(Slow).remote()
    count = actor.count.options(concurrency_group="state")
    assert ray.get(count.remote()) == 0
    shard = ReplicatedShard(0, [], [Replica(0, list_nodes()[0], actor, is_ready=True)], 20.0, Metrics())

    def search(seconds: int) -> Any:  # noqa: ANN401
        return shard.search(ShardSearch("made/minilm", np.zeros((1, 384), np.float32), seconds))

    first, second = search(4), search(4)
    wait_until(lambda: ray.get(count.remote()) == 2, 10)
    for _ in range(3):
        with cancellation_scope(deadline=time.monotonic() + 0.4), pytest.raises(ShardUnavailable, match=r"there was no answer within 0.3"):
            search(4).result()
    with cancellation_scope(lambda: True), pytest.raises(DeadlineExceeded, match="nobody waits"):
        search(4).result()
    assert search(0).result().value.rows.tolist() == [[0]]
    assert ray.get(count.remote()) == 3
    with cancellation_scope(deadline=time.monotonic()):  # what is there is taken, however late it is
        assert first.result().value.rows.tolist() == second.result().value.rows.tolist() == [[0]]
    ray.kill(actor)


def test_a_shard_that_could_not_be_opened_again_is_once_it_can_be() -> None:
    place = index_ref("made", "minilm").path
    with serving_shards("minilm", shards=2, replicas=1) as sharded, RemoteSearcher(sharded.url, retries=0) as remote:
        expected, process = search_all(remote), sharded.process(1)
        place.rename(place.with_name("away"))
        try:
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: not is_running(process) and len(shard_processes()) == 2, 60)  # it has been started again
            time.sleep(3.0)
            with pytest.raises(ShardUnavailable, match="shard 1"):
                remote.search(["river"])
        finally:
            place.with_name("away").rename(place)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 60)
        assert search_all(remote) == expected


def test_shards_of_another_store_are_not_opened() -> None:
    build("changed", some_passages(N))
    shards = service(corpus="changed")
    with shards.exchange() as opener:
        build("changed", some_passages(N)[::-1])
        with pytest.raises(ArtifactMismatch, match=r"the passages of 'changed' are \S+, the shards of 'minilm' are of"):
            opener("changed", "minilm", open_store("changed"), device="cpu")
    shards.stop()


class Gated(ShardService):
    """Waits before it opens a retriever, then may fail; counts exchanges."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments)
        self.gate, self.fails, self.n_begun, self.processes = threading.Event(), False, 0, set[int]()

    @contextmanager
    def exchange(self) -> Iterator[OpenRetriever]:
        with super().exchange() as opener:

            def gated(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
                assert self.gate.wait(60)
                self.processes = shard_processes()
                if self.fails:
                    raise RuntimeError("a stage that cannot be opened")
                return opener(corpus, name, store, device=device)

            self.n_begun += 1
            yield gated


def test_a_reload_during_opening_waits_for_it_and_one_that_fails_is_undone() -> None:
    with serving_shards("minilm", shards=2, replicas=1, held_by=Gated) as sharded:
        shards = sharded.shards
        assert isinstance(shards, Gated)
        wait_until(lambda: shards.n_begun == 1, 60)
        reloading = threading.Thread(target=sharded.service.reload)
        reloading.start()
        time.sleep(0.5)
        assert shards.n_begun == 1
        shards.gate.set()
        reloading.join(60)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 20)
        assert shards.n_begun == 2
        processes, before = [sharded.process(number) for number in range(2)], shard_processes()
        shards.fails = True
        with pytest.raises(RuntimeError, match="a stage that cannot be opened"):
            sharded.service.reload()
        assert len(shards.processes - before) == 2
        wait_until(lambda: not any(map(is_running, shards.processes - before)), 20)
        assert [sharded.process(number) for number in range(2)] == processes
        with RemoteSearcher(sharded.url) as remote:
            assert search_all(remote) == search_all(open_searcher("made", "minilm"))
    wait_until(lambda: not shard_processes(), 20)


def test_the_end_ends_those_before_and_waits_for_an_exchange() -> None:
    shards = service()
    for _ in range(2):
        with shards.exchange():
            pass
    with shards.exchange():
        assert len(shard_processes()) == 6
        ending = threading.Thread(target=shards.stop)
        ending.start()
    ending.join(20)
    wait_until(lambda: not shard_processes(), 20)
    shards.stop()
    with pytest.raises(IdxError, match="is being ended"), shards.exchange():
        pass


def test_nodes_without_processors_get_no_shard_and_gpus_that_are_not_there_are_not_waited_for(cluster: Any) -> None:  # noqa: ANN401
    assert (len(list_nodes()), Layout().n_shards()) == (3, 2)
    with pytest.raises(InputError, match="--device cuda:1 with --ray: use auto, cpu or cuda"):
        service(device="cuda:1")
    with pytest.raises(InputError, match=r"2 processes \(shards times replicas\) need a GPU each, the Ray cluster has 0"):
        service(device="cuda").exchange().__enter__()


def test_a_shard_whose_node_is_lost_is_shown_where_it_is(cluster: Any) -> None:  # noqa: ANN401
    with serving_shards("minilm", shards=2, replicas=1) as sharded, RemoteSearcher(sharded.url, retries=0) as remote:
        expected, before = search_all(remote), sharded.replicas(1)[0]["node"]
        lost = next(node for node in cluster.worker_nodes if node.node_id == next(n.id for n in list_nodes() if n.address == before))
        cluster.remove_node(lost)
        wait_until(lambda: sharded.replicas(1)[0]["node"] != before, 120)
        assert sharded.replicas(1)[0]["node"] in [node.address for node in list_nodes()]
        wait_until(lambda: ask(sharded.url, "/v1/search", BODY).status == 200, 60)
        assert search_all(remote) == expected

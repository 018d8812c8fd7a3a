"""What goes wrong in shards on a Ray cluster, and in exchanging them: processes that hang, files that are gone, a reload too early."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from corpora.build import StoreOptions, build_store, open_store
from corpora.errors import ArtifactError, ArtifactMismatch, IdxError, InputError
from corpora.store import PassageStore
from indexer.build import build_index
from indexer.catalog import index_path
from indexer.cluster.nodes import connected, nodes
from retrievers.base import Retriever
from retrievers.cancellation import while_wanted
from retrievers.client import RemoteSearcher
from retrievers.cluster.service import Layout, ShardService
from retrievers.cluster.sharded import Asked
from retrievers.errors import DeadlineExceeded, ShardUnavailable
from retrievers.opening import open_searcher
from retrievers.server.metrics import Metrics
from retrievers.server.running import reload_behind
from retrievers.server.settings import Settings
from tests.conftest import corpus_of
from tests.indexer.cluster.ray_nodes import cluster_of
from tests.retrievers.cluster.sharded_server import LIMITS, Load, Sharded, found_by, is_running, serving_shards
from tests.retrievers.server.conftest import some_passages
from tests.retrievers.server.serving import ask, wait_until

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

N = 60

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head without processors and two nodes, which this process is connected to, and a home with a corpus."""
    with pytest.MonkeyPatch.context() as patch, cluster_of(2) as found:
        patch.setenv("IDX_HOME", str(tmp_path_factory.mktemp("faults")))
        build_store(corpus_of(some_passages(N)), StoreOptions())
        build_index("made", "bm25", open_store("made"))
        with connected(found.address):
            yield found


@pytest.fixture(autouse=True)
def home(cluster: Any) -> None:  # noqa: ANN401
    """The module's home, not one of each test's own."""


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Let a process hang."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.monotonic()
    return call(), time.monotonic() - started


def states(sharded: Sharded, shard: int) -> list[str]:
    return [replica["state"] for replica in sharded.replicas(shard)]


def service(*, corpus: str = "made", device: str = "auto", replicas: int = 1) -> ShardService:
    settings = Settings(corpora=(corpus,), retrievers=("bm25",), limits=LIMITS, device=device)
    return ShardService(settings, Layout(shards=2, replicas=replicas), Metrics((corpus,), ("bm25",), n_shards=2))


def test_a_shard_that_hangs_is_a_503_or_told_in_time_and_counted() -> None:
    body = {"queries": ["river number 7"], "k": 20}
    with serving_shards("bm25", shards=2, replicas=1) as sharded:
        with stopped(sharded.process(1)):
            started = time.monotonic()
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", {**body, "partial": True, "timeout_s": 2.0}))
            assert answer.json["not_searched"] == [{"index": "bm25", "first_row": 30, "stop_row": 60}]
            assert seconds < 2.0
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", {**body, "timeout_s": 2.0}))
            assert (answer.status, answer.json["error_type"]) == (503, "ShardUnavailable")
            assert "there was no answer within 1.5 s" in answer.json["error"]
            answer = ask(sharded.url, "/v1/search", {**body, "timeout_s": 19.0})  # it is given up once it counts as lost
            assert (answer.status, "says any more how it is" in answer.json["error"]) == (503, True)
            assert time.monotonic() - started < 15.0
            assert (states(sharded, 1), states(sharded, 0)) == (["lost"], ["ready"])
            answer, seconds = timed(lambda: ask(sharded.url, "/v1/search", body))
            assert (answer.status, seconds < 1.0) == (503, True)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 20)
        with RemoteSearcher(sharded.url) as remote:
            assert found_by(remote) == found_by(open_searcher("made"))
        for _ in range(2):  # it is counted once, not again whenever shards are looked at
            time.sleep(2.0)
            text = ask(sharded.url, "/metrics").body.decode()
            assert 'idx_shard_unavailable_total{shard="1"} 4.0\n' in text
            assert 'idx_shard_failures_total{shard="1"}' not in text  # to be slow is not to fail


def test_a_replica_that_hangs_loses_no_request_and_is_asked_again() -> None:
    expected = found_by(open_searcher("made"))
    with serving_shards("bm25", shards=2, replicas=2) as sharded:
        with Load(sharded.url, lambda found: found == expected) as load:
            with stopped(sharded.process(0)):
                load.wait_for(40)
                wait_until(lambda: states(sharded, 0) == ["late", "ready"], 20)
                load.wait_for(40)
            wait_until(lambda: states(sharded, 0) == ["ready", "ready"], 20)
        assert not load.failures


def test_nobody_waits_for_a_shard_in_vain() -> None:
    with serving_shards("bm25", shards=2, replicas=1) as sharded:
        served = sharded.shards._served
        assert served is not None
        with stopped(sharded.process(1)), while_wanted(lambda: False):
            answer = served.shards[1].search(Asked("made/bm25", ["river"], 5))
            started = time.monotonic()
            with pytest.raises(DeadlineExceeded, match="nobody waits"):
                answer()
            assert time.monotonic() - started < 2.0
            there = served.shards[0].search(Asked("made/bm25", ["river"], 5))
            time.sleep(1.0)
        with while_wanted(lambda: True, time.monotonic()):  # what is there is taken, however late it is
            assert there().value.rows.shape == (1, 5)


def test_a_shard_that_could_not_be_opened_again_is_once_it_can_be() -> None:
    place = index_path("made", "bm25")
    with serving_shards("bm25", shards=2, replicas=1) as sharded, RemoteSearcher(sharded.url, retries=0) as remote:
        expected = found_by(remote)
        served = sharded.shards._served
        assert served is not None
        handle = served.shards[1].replicas[0].handle
        place.rename(place.with_name("away"))
        try:
            os.kill(sharded.process(1), signal.SIGKILL)
            wait_until(lambda: isinstance(failure(handle), ArtifactError), 60)
            with pytest.raises(ShardUnavailable, match="shard 1"):
                remote.search(["river"])
        finally:
            place.with_name("away").rename(place)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 60)
        assert found_by(remote) == expected


def failure(handle: Any) -> BaseException | None:  # noqa: ANN401 - Ray's
    """Return what kept an actor's shard from being opened; None while Ray starts the actor."""
    try:
        ray.get(handle.described.remote())
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error.cause
        return cause
    except ray.exceptions.RayError:
        pass
    return None


def test_shards_of_another_store_are_not_opened() -> None:
    build_store(corpus_of(some_passages(N), "changed"), StoreOptions())
    build_index("changed", "bm25", open_store("changed"))
    shards = service(corpus="changed")
    try:
        shards.begin()
        build_store(corpus_of(some_passages(N)[::-1], "changed"), StoreOptions(replace=True, rebuild=True))
        build_index("changed", "bm25", open_store("changed"), force=True)
        with pytest.raises(ArtifactMismatch, match=r"the passages of 'changed' are \S+, the shards of 'bm25' are of"):
            shards("changed", "bm25", open_store("changed"), device="cpu")
    finally:
        shards.stop()


class Gated(ShardService):
    """Waits before it opens a first stage, then may fail; notes the processes of what was begun."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments)
        self.gate, self.fails, self.processes = threading.Event(), False, list[int]()

    def __call__(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        assert self.gate.wait(60)
        if self.fails:
            assert self._begun is not None
            self.processes = [ray.get(shard.replicas[0].handle.state.remote()).pid for shard in self._begun.shards]
            raise RuntimeError("a stage that cannot be opened")
        return super().__call__(corpus, name, store, device=device)


def test_a_reload_during_opening_waits_for_it_and_one_that_fails_is_undone(caplog: pytest.LogCaptureFixture) -> None:
    with serving_shards("bm25", shards=2, replicas=1, held_by=Gated) as sharded:
        shards = sharded.shards
        assert isinstance(shards, Gated)
        wait_until(lambda: shards._begun is not None, 60)
        first = shards._begun
        catalog = sharded.service._catalog
        assert catalog is not None
        reloading = reload_behind(catalog)
        time.sleep(0.5)
        assert shards._begun is first
        shards.gate.set()
        reloading.join(60)
        wait_until(lambda: ask(sharded.url, "/ready").status == 200, 20)
        served, processes = shards._served, [sharded.process(number) for number in range(2)]
        assert served is not first
        shards.fails = True
        reload_behind(catalog).join(60)
        assert "a stage that cannot be opened" in caplog.text
        assert len(shards.processes) == 2
        wait_until(lambda: not any(map(is_running, shards.processes)), 20)
        assert shards._served is served
        assert [sharded.process(number) for number in range(2)] == processes
        with RemoteSearcher(sharded.url) as remote:
            assert found_by(remote) == found_by(open_searcher("made"))
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_the_end_ends_those_before_and_what_is_begun() -> None:
    shards = service()
    with pytest.raises(IdxError, match="no shard has been started"):
        shards.commit()
    for _ in range(2):
        shards.begin()
        shards.commit()
    shards.begin()
    there = [*(before for _, before in shards._before), shards._served, shards._begun]
    handles = [shard.replicas[0].handle for one in there if one is not None for shard in one.shards]
    processes = [ray.get(handle.state.remote()).pid for handle in handles]
    assert len(set(processes)) == 6
    shards.stop()
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    wait_until(lambda: not any(map(is_running, processes)), 10)
    shards.stop()
    with pytest.raises(IdxError, match="is being ended"):
        shards.begin()


def test_nodes_without_processors_get_no_shard_and_gpus_that_are_not_there_are_not_waited_for(cluster: Any) -> None:  # noqa: ANN401
    assert (len(nodes()), Layout().n_shards()) == (3, 2)
    with pytest.raises(InputError, match="--device cuda:1 with --ray: say auto, cpu or cuda"):
        service(device="cuda:1")
    settings = Settings(corpora=("made",), retrievers=("minilm",), device="cuda")
    wanting = ShardService(settings, Layout(shards=2), Metrics(("made",), ("minilm",)))
    with pytest.raises(InputError, match=r"2 processes \(shards times replicas\) need a GPU each, the Ray cluster has 0"):
        wanting._started({("made", "minilm"): index_identity_of_bm25()})


def index_identity_of_bm25() -> Any:  # noqa: ANN401
    from indexer.row_range import index_identity

    return index_identity("made", "bm25")


def test_a_shard_whose_node_is_lost_is_shown_where_it_is(cluster: Any) -> None:  # noqa: ANN401
    with serving_shards("bm25", shards=2, replicas=1) as sharded, RemoteSearcher(sharded.url, retries=0) as remote:
        expected, before = found_by(remote), sharded.replicas(1)[0]["node"]
        lost = next(node for node in cluster.worker_nodes if node.node_id == next(n.id for n in nodes() if n.address == before))
        cluster.remove_node(lost)
        wait_until(lambda: sharded.replicas(1)[0]["node"] != before, 120)
        assert sharded.replicas(1)[0]["node"] in [node.address for node in nodes()]
        body = {"queries": ["river number 7"], "k": 20}
        wait_until(lambda: ask(sharded.url, "/v1/search", body).status == 200, 60)
        assert found_by(remote) == expected

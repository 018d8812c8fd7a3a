"""A GPU that fails: after most errors of CUDA all later calls fail, too, until the process ends. torch's answers are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.retrievers.retrieving import Forwarding, opener_of
from tests.retrievers.server.serving import ask, search, wait_until
from wikidx.base.errors import IdxError
from wikidx.base.machine.failures import DeviceLost, device_errors
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, SearchParams
from wikidx.retrievers.cluster.shard import ShardActor
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.settings import Settings, listen, server_url

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

FAULT = "CUDA error: an illegal memory access was encountered"
MESSAGE = f"cuda:0 failed: {FAULT}; start again"


def fail(*arguments: object) -> Any:  # noqa: ANN401 - as a search or as ``synchronize``
    raise RuntimeError(f"{FAULT}\nCUDA kernel errors might be asynchronously reported at some other API call")


class OnGpu(Forwarding):
    """A retriever that fails as one on a GPU does if a query says so."""

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        with device_errors("cuda:0", "exact search", "use another", aftermath="; start again"):
            return fail() if "fault" in queries else super().retrieve(queries, depth, params)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_server_ends_when_its_gpu_takes_no_work_any_more(is_lost: bool, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", fail if is_lost else lambda device: None)
    settings = Settings(corpora=("made",), port=0, limits=Limits(drain_s=0.0))
    listener = listen(settings)
    url, service = server_url(listener), Service(settings, listener, Metrics(), opener_of(OnGpu))
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(service.run)
        try:
            wait_until(lambda: ask(url, "/ready").status == 200)
            answer = search(url, queries=["fault"])
            assert (answer.status, answer.json["error"]) == (500, MESSAGE)
            if is_lost:
                error = ended.exception(timeout=30)
                assert (type(error), str(error)) == (DeviceLost, MESSAGE)
            else:
                assert search(url, queries=["fox"]).json["rankings"][0]
        finally:
            service.stop()


@pytest.mark.parametrize(("device", "is_lost"), [("cuda:0", True), ("cpu", False)])
def test_only_a_gpu_can_be_lost(device: str, is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with pytest.raises(IdxError) as raised, device_errors(device, "queries", "use another"):
        fail()
    assert isinstance(raised.value, DeviceLost) == is_lost


def test_the_process_of_a_shard_ends_so_that_ray_starts_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Range:
        def search(self) -> Hits:
            raise DeviceLost(MESSAGE)

    def end(status: int) -> None:
        raise SystemExit(status)

    actor = object.__new__(ShardActor)  # its constructor sets limits of this process
    monkeypatch.setattr(actor, "_opened", {("made", "minilm"): Range()}, raising=False)
    monkeypatch.setattr("os._exit", end)
    with pytest.raises(SystemExit, match="1"):
        actor.call("search", ("made", "minilm"))
    assert capsys.readouterr().err == f"{MESSAGE}\n"

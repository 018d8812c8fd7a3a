"""Several server processes and GPUs: they divide what fits, or are refused in one line."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.retrievers.server import workers
from wikidx.retrievers.server.settings import Settings

GB = 10**9
NEEDED = 3.18 * GB + 0.38 * GB  # WORK_BYTES; MiniLM in float32, and 16,384 tokens of queries: worked out below


def settings_of(n_workers: int, device: str, retriever: str = "minilm") -> Settings:
    return Settings(corpora=("made",), retrievers=(retriever,), workers=n_workers, device=device)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, build: Callable[..., PassageStore]) -> list[int]:
    """Free memory of named fakes of GPUs; a test changes it."""
    store = build([Passage("1", "Fox", "The red fox."), Passage("2", "Whale", "The blue whale.")])
    for name in ("bm25", "minilm"):
        build_index("made", name, store)
    free = list[int]()
    monkeypatch.setattr(workers, "ask_all_gpus", lambda: free)
    monkeypatch.setattr(workers, "may_use_gpus", lambda device: device not in ("cpu", "mps"))
    return free


def test_the_memory_of_a_process_by_hand(gpus: list[int]) -> None:
    vectors, networks = workers._demands(settings_of(2, "auto"))
    assert [demand.divided_bytes for demand in vectors] == [2 * 384 * 4]
    # 22.56 million weights of 4 bytes, 16,384 tokens x (11 x 384 components of 4 bytes, and a mask of 256 bytes).
    assert [demand.n_bytes for demand in networks] == [pytest.approx(4 * 22.56e6 + 16_384 * (11 * 384 * 4 + 256), rel=0.01)]
    assert vectors[0].n_bytes + networks[0].n_bytes == pytest.approx(NEEDED, rel=0.01)


@pytest.mark.parametrize(
    ("free", "n_workers", "device", "expected"),
    [
        ([8 * GB], 2, "auto", ["cuda:0", "cuda:0"]),
        ([8 * GB, 4 * GB], 3, "all", ["cuda:0", "cuda:0", "cuda:1"]),
        ([8 * GB, 4 * GB], 1, "cuda:1", ["cuda:1"]),
        ([4 * GB, 9 * GB], 2, "cuda:1", ["cuda:1", "cuda:1"]),
        ([8 * GB], 3, "cpu", ["cpu", "cpu", "cpu"]),
        ([], 2, "auto", ["cpu", "cpu"]),
    ],
)
def test_processes_divide_the_gpus(free: list[int], n_workers: int, device: str, expected: list[str], gpus: list[int]) -> None:
    gpus.extend(free)
    assert workers.place_workers(settings_of(n_workers, device)) == expected


def test_processes_that_do_not_fit_are_refused_or_stay_on_the_cpu(gpus: list[int], caplog: pytest.LogCaptureFixture) -> None:
    gpus.append(8 * GB)
    reason = "each of 3 processes needs 3.6 GB of one GPU, and cuda:0 has 8.0 GB free"
    with pytest.raises(InputError) as raised:
        workers.place_workers(settings_of(3, "cuda"))
    assert str(raised.value) == f"--workers 3 with --device cuda: {reason}: --workers 2, or --device cpu"
    caplog.set_level(logging.INFO, "idx.server")
    assert workers.place_workers(settings_of(3, "auto")) == ["cpu"] * 3
    assert caplog.messages == [f"on the CPU: {reason}"]


def test_bm25_needs_no_gpu(gpus: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ask_all_gpus", lambda: pytest.fail("asked"))
    assert workers.place_workers(settings_of(4, "auto", "bm25")) == ["cpu"] * 4

"""Several server processes and a GPU: they would race for its memory."""

from __future__ import annotations

import logging

import pytest

from wikidx.corpora.errors import InputError
from wikidx.retrievers.server import workers
from wikidx.retrievers.server.settings import Settings


def settings_of(n_workers: int, device: str) -> Settings:
    return Settings(corpora=("sample",), retrievers=("bm25",), workers=n_workers, device=device)


@pytest.mark.parametrize(
    ("n_workers", "device", "expected"), [(1, "auto", "auto"), (1, "cuda:1", "cuda:1"), (4, "cpu", "cpu"), (4, "auto", "cpu")]
)
def test_several_processes_stay_on_the_cpu(n_workers: int, device: str, expected: str) -> None:
    assert workers.share_device(settings_of(n_workers, device)) == settings_of(n_workers, expected)


@pytest.mark.parametrize("device", ["cuda", "cuda:0,1", "all"])
def test_several_processes_on_a_gpu_are_refused(device: str) -> None:
    with pytest.raises(InputError, match=f"--workers 4 with --device {device}: one process uses a GPU fully, .* use --device cpu"):
        workers.share_device(settings_of(4, device))


@pytest.mark.parametrize("has_driver", [False, True])
def test_a_gpu_that_is_left_out_is_named(has_driver: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(workers, "has_gpu_driver", lambda: has_driver)
    caplog.set_level(logging.INFO, "idx.server")
    workers.share_device(settings_of(4, "auto"))
    expected = ["on the CPU, because 4 processes would race for a GPU's memory: leave --workers out to use it"]
    assert caplog.messages == (expected if has_driver else [])

"""The devices of several server processes."""

from __future__ import annotations

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import InputError
from wikidx.retrievers.server import workers
from wikidx.retrievers.server.settings import Settings


def devices_of(n_workers: int, device: str) -> list[str]:
    return workers.place_workers(Settings(corpora=("made",), retrievers=("minilm",), workers=n_workers, device=device))


@pytest.mark.parametrize(
    ("n_workers", "device", "expected"),
    read_rows("retrievers/server/worker_devices.jsonl"),
)
def test_each_process_takes_one_of_the_named_gpus_in_turn(
    n_workers: int, device: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ask_all_gpus", lambda: [8, 8])
    assert devices_of(n_workers, device) == expected


def test_all_gpus_of_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ask_all_gpus", list)
    with pytest.raises(InputError, match="--device all: there is no GPU"):
        devices_of(2, "all")

"""``idx check --gpu``: three comparisons and the figures of the device, here of the CPU; ``tests/gpu`` has the comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="needs the extra 'dense'")

from tests.runtimes.command_line import Command
from wikidx.runtimes.cli import check_gpu
from wikidx.runtimes.cli.check import _part_json
from wikidx.runtimes.cli.check_gpu import Difference


def fake(device: str) -> Iterator[Difference]:
    assert device == "cpu"
    yield Difference("right", 1e-7, 1e-5)


def fake_nan(device: str) -> Iterator[Difference]:
    yield Difference("no number", float("nan"), 1e-5)


def fake_error(device: str) -> Iterator[Difference]:
    yield Difference("right", 0.0, 1e-5)
    raise RuntimeError("CUDA error: an illegal\nmemory access was encountered")


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_gpu, "device_to_check", lambda: "cpu")


def test_all_comparisons_pass_here(idx: Command) -> None:
    said = json.loads(idx("check", "--gpu", "--json"))
    assert (said["device"], said["passed"]) == ("cpu", True)
    assert [part["name"] for part in said["parts"]] == ["exact search", "encoder minilm", "text model"]
    assert [len(part["differences"]) for part in said["parts"]] == [2, 3, 2]
    assert all(0 <= found["difference"] <= found["allowed"] for part in said["parts"] for found in part["differences"])
    assert said["figures"]["copy GB/s"] > 0.1
    assert said["figures"]["products TFLOP/s"] > 0


def test_what_fails_is_said_and_the_others_go_on(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_gpu, "describe_device", lambda device: {"card": "none", "copy GB/s": 3000.0})
    for name, comparison in {"search": fake_error, "encoder": fake_nan, "text_model": fake}.items():
        monkeypatch.setattr(check_gpu, f"compare_{name}", comparison)
    lines = idx("check", "--gpu", status=1).splitlines()
    assert lines == ["cpu: not all comparisons passed; there is no GPU here"]
    parts = list(check_gpu.compare_all("cpu"))
    assert [part.passed for part in parts] == [False, False, True]
    assert parts[0].reason == "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert _part_json(parts[1])["differences"] == [{"case": "no number", "difference": None, "allowed": 1e-5, "passed": False}]

"""The fit of vectors and networks on GPUs, and where exact search puts its vectors."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.conftest import ROOT, read_rows
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine import devices
from wikidx.base.machine.fit import Demand, Placement, fit
from wikidx.indexer.indexes.exact.memory import WORK_BYTES, choose_devices

GB = 10**9
Vectors = tuple[int, int, str]
WIKI16, WIKI32 = (21_015_324, 768, "float16"), (21_015_324, 768, "float32")
TOLD16, TOLD32 = (f"{size} GB of {kind} vectors (21,015,324 × 768)" for size, kind in (("32.3", "float16"), ("64.6", "float32")))


def test_the_fewest_gpus_with_room_are_found_of_these_the_emptiest() -> None:
    """Against all subsets of the GPUs."""
    random_, n_fitting = random.Random(25), 0
    for _ in range(500):
        free = {number: random_.randrange(12) for number in random_.sample(range(6), random_.randint(0, 4))}
        demand = Demand("v", random_.randrange(4), random_.randrange(30))
        subsets = [subset for n in range(1, len(free) + 1) for subset in itertools.combinations(sorted(free), n)]
        fitting = [subset for subset in subsets if all(free[number] >= demand.on_each(len(subset)) for number in subset)]
        best = min(fitting, key=lambda subset: (len(subset), sorted(-free[number] for number in subset), subset), default=())
        assert fit(demand, free) == best
        assert fit(demand, free, on_all=True) == (tuple(free) if tuple(sorted(free)) in fitting else ())
        n_fitting += bool(fitting)
    assert 100 < n_fitting < 450


@pytest.mark.parametrize(("size", "device", "free", "devices", "reason"), read_rows("base/placements.jsonl"))
def test_a_device_is_picked_and_the_reason_given(size: Vectors, device: str, free: list[int], devices: str, reason: str) -> None:
    expected = Placement(tuple(devices.split()), f"exact search on {reason}")
    assert choose_devices(*size, device, [gigabytes * GB for gigabytes in free]) == expected


@pytest.mark.parametrize(("size", "device", "free", "message"), read_rows("base/refused_placements.jsonl"))
def test_what_does_not_fit_or_is_not_there_is_refused(size: Vectors, device: str, free: Sequence[int], message: str) -> None:
    with pytest.raises(InputError) as raised:
        choose_devices(*size, device, [gigabytes * GB for gigabytes in free])
    assert str(raised.value) == message


def test_to_the_byte() -> None:
    assert choose_devices(1000, 10, "float32", "auto", [40_000 + WORK_BYTES]).devices == ("cuda:0",)
    assert choose_devices(1000, 10, "float32", "auto", [40_000 + WORK_BYTES - 1]).devices == ("cpu",)


def test_without_a_gpu_auto_does_not_import_torch() -> None:
    code = (
        "import sys, wikidx.indexer.indexes.exact.memory as m; m.devices._SIGNS_OF_A_GPU = ('/no/such/device',); "
        "print(m.choose_devices(3, 4, 'float32', 'auto').devices, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "('cpu',) False\n"


def test_a_gpu_that_fails_counts_as_full_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    def free(number: int) -> tuple[int, int]:
        if number == 1:
            raise RuntimeError("CUDA error: uncorrectable ECC error\nmore of it")
        return 40 * GB, 80 * GB

    monkeypatch.setattr(torch.cuda, "mem_get_info", free)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("wikidx.base.machine.devices._SIGNS_OF_A_GPU", ("/",))
    monkeypatch.setattr(devices, "ask_all_gpus", lambda: [devices.free_memory(number, is_named=False) for number in range(2)])
    assert choose_devices(*WIKI16, "auto").devices == ("cuda:0",)
    assert choose_devices(*WIKI16, "cuda:0").devices == ("cuda:0",)
    with pytest.raises(IdxError, match=r"cuda:1 does not report its free memory \(CUDA error: uncorrectable ECC error\): name another"):
        choose_devices(*WIKI16, "cuda:1")
    assert choose_devices(1000, 100, "float32", "cpu").reason.endswith("400.0 kB of float32 vectors (1,000 × 100)")

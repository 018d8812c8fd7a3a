"""Resolution of --device, --dtype and --batch-tokens; no test needs the devices named."""

from __future__ import annotations

import pytest
import torch

from tests.conftest import read_rows
from wikidx.base.errors import InputError
from wikidx.base.machine import devices
from wikidx.base.machine.devices import count_gpus, count_search_gpus, free_memory, free_memory_of_gpus, resolve_device
from wikidx.base.machine.fit import Demand
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions, Precision
from wikidx.indexer.naming import encoder_spec

GB = 10**9
EMBED = "wikidx.indexer.embedding.embed"
CONTRIEVER, GTR = encoder_spec("contriever"), encoder_spec("gtr")


@pytest.mark.parametrize(
    ("dtype", "on_cpu", "on_gpu"),
    [
        (None, Precision("float32", "float32"), None),
        ("float32", Precision("float32", "float32"), Precision("float32", "float32")),
        ("float16", Precision("float32", "float16"), None),
        ("bfloat16", Precision("bfloat16", "float16"), Precision("bfloat16", "float16")),
    ],
)
def test_what_is_computed_and_what_is_stored(dtype: str | None, on_cpu: Precision, on_gpu: Precision | None) -> None:
    """On a GPU, half precision is the encoder's."""
    for spec, half in ((CONTRIEVER, Precision("float16", "float16")), (GTR, Precision("bfloat16", "float16"))):
        for device, expected in (("cpu", on_cpu), ("cuda", on_gpu or half), ("cuda:1", on_gpu or half)):
            assert resolve_resources(EmbedOptions(device=device, dtype=dtype), spec).precision == expected


@pytest.mark.parametrize(("device", "n_gpus", "expected"), read_rows("base/devices.jsonl"))
def test_devices_are_named_as_torch_names_them(device: str, n_gpus: int, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EMBED + ".count_gpus", lambda: n_gpus)
    monkeypatch.setattr(devices, "count_gpus", lambda: n_gpus)
    monkeypatch.setattr(devices, "ask_all_gpus", lambda: [7] * n_gpus)
    assert resolve_resources(EmbedOptions(device=device), CONTRIEVER).devices == tuple(expected)


@pytest.mark.parametrize(
    ("device", "n_threads", "n_tokenizing"),
    [("cpu", 16, 0), ("cuda", 1, 1), ("cuda", 8, 7), ("cuda", 64, 12), ("cuda:0,1,2,3", 16, 3), ("cuda:0,1,2,3", 4, 1)],
)
def test_the_threads_that_the_devices_leave_tokenise(
    device: str, n_threads: int, n_tokenizing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EMBED + ".n_threads", lambda: n_threads)
    assert resolve_resources(EmbedOptions(device=device), CONTRIEVER).n_tokenizing == n_tokenizing


def test_batches_are_of_the_size_that_is_asked_for_or_suits_the_device() -> None:
    assert resolve_resources(EmbedOptions(device="cpu"), CONTRIEVER).batch_tokens == 1_024
    assert resolve_resources(EmbedOptions(device="cuda"), CONTRIEVER).batch_tokens == 32_768
    assert resolve_resources(EmbedOptions(device="cuda", batch_tokens=7), CONTRIEVER).batch_tokens == 7


@pytest.mark.parametrize(("options", "message"), read_rows("base/refused_resources.jsonl"))
def test_other_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EmbedOptions(**options)  # type: ignore[arg-type]


def test_resolving_a_device_chooses_kernels_that_can_be_relied_on() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    assert resolve_device("cpu") == "cpu"
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]


def test_a_driver_that_fails_late_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization\nmore")

    monkeypatch.setattr(torch, "empty", fail)
    with pytest.raises(InputError, match="^the device 'cuda:1' cannot be used: CUDA call failed lazily at initialization$"):
        resolve_device("cuda:1")


def test_only_named_gpus_are_asked_for_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def ask(number: int) -> tuple[int, int]:
        asked.append(number)
        return 7 * number, 80

    monkeypatch.setattr(torch.cuda, "mem_get_info", ask)
    assert free_memory_of_gpus("cuda:3,1", 8) == [0, 7, 0, 21, 0, 0, 0, 0]
    assert sorted(asked) == [1, 3]
    asked.clear()
    monkeypatch.setattr(devices, "ask_all_gpus", lambda: [5, 9, 7])
    assert free_memory_of_gpus("auto", 3) == [5, 9, 7]  # another process asks, in which a context costs nothing for long
    assert not asked
    assert free_memory_of_gpus("auto", 1) == [0]
    assert free_memory_of_gpus("auto", 0) == []


def test_a_process_asks_all_gpus_and_says_if_it_cannot(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert devices.ask_all_gpus() == []  # this machine has none
    assert not caplog.messages
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert devices.ask_all_gpus() == []
    assert caplog.messages[0].startswith("the GPUs' free memory cannot be read (")


def test_the_process_prints_what_each_gpu_has(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(devices, "count_gpus", lambda: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (10 - number, 80))
    devices.print_free_memory()
    assert capsys.readouterr().out == "10 9 8"


@pytest.mark.parametrize("hip", [None, "6.4"])
def test_auto_is_the_emptiest_gpu_with_room_on_cuda_and_rocm(
    hip: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(devices, "count_gpus", lambda: 3)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(devices, "ask_all_gpus", lambda: [5 * GB, 9 * GB, 7 * GB])
    assert resolve_device("auto") == "cuda:1"
    assert resolve_device("auto", Demand("the encoder 'e'", 5.8 * GB)) == "cuda:1"  # and 3.2 GB for searches
    assert not caplog.messages
    assert resolve_device("auto", Demand("the encoder 'e'", 5.8 * GB + 1)) == "cpu"
    room = "it would take 9.0 GB of a GPU with the searches beside it, and 5.0 and 9.0 and 7.0 GB are free"
    assert caplog.messages == [f"the encoder 'e' is on the CPU: {room} (--device names a GPU)"]
    monkeypatch.setattr(EMBED + ".count_gpus", lambda: 3)
    assert resolve_resources(EmbedOptions(), CONTRIEVER).devices == ("cuda:1",)


def test_a_network_that_does_not_fit_on_a_named_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda *arguments, **options: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (number * GB, 80 * GB))
    assert resolve_device("cuda:2", Demand("the encoder 'e'", 2 * GB)) == "cuda:2"
    with pytest.raises(InputError) as raised:
        resolve_device("cuda:1", Demand("the encoder 'e'", 2 * GB))
    sizes = "it takes 2.0 GB, and 1.0 GB are free"
    assert str(raised.value) == f"the encoder 'e' does not fit on cuda:1: {sizes}: name another GPU, or --device cpu"


@pytest.mark.parametrize(("is_available", "hip", "expected"), [(True, None, 4), (False, None, 0), (True, "6.4", 0)])
def test_gpus_are_those_that_cuda_can_use(is_available: bool, hip: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of devices comes from the driver's files, even if CUDA cannot start; ROCm calls its own devices cuda."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert count_search_gpus() == expected
    assert count_gpus() == (4 if is_available else 0)


def test_memory_that_torch_keeps_unused_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [10]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(70))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (free[-1], 80))
    assert free_memory(0, is_named=True) == 70

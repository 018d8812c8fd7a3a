"""Decisions and computations of the GPU indexes that need no GPU; their kernels cannot run here."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.indexer.made_vectors import clustered
from tests.indexer.test_faiss import DIM, NOTHING, N, corpus_vectors, write
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.devices import resolve_gpus
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.machine.fit import Placement
from wikidx.base.machine.threads import equal_ranges
from wikidx.indexer.base import Hits
from wikidx.indexer.indexes.approximate import LARGEST_K, ApproximateIndex
from wikidx.indexer.indexes.faiss.gpu import (
    _WITHOUT_GPUS,
    _choose_gpus,
    _copy_ivf,
    _divide_lists,
    _GpuWorkers,
    list_bytes,
    open_ivf_anywhere,
    select_lists,
)
from wikidx.indexer.indexes.faiss.library import INDEX_FILE, load_faiss
from wikidx.indexer.indexes.keys import merge_hits
from wikidx.indexer.indexes.kinds import OpenOptions

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")


@pytest.mark.parametrize(
    ("device", "n_gpus", "expected"),
    [
        ("cpu", 4, ()),
        ("mps", 4, ()),
        ("auto", 0, ()),
        ("auto", 4, (0,)),
        ("cuda", 4, (0,)),
        ("cuda:3", 4, (3,)),
        ("cuda:2,0,2", 4, (2, 0)),
        ("all", 3, (0, 1, 2)),
    ],
)
def test_devices_are_gpus_by_number(device: str, n_gpus: int, expected: tuple[int, ...]) -> None:
    assert resolve_gpus(device, n_gpus, "this FAISS", _WITHOUT_GPUS) == expected


@pytest.mark.parametrize(
    ("device", "n_gpus", "message"),
    [
        ("cuda", 0, "there is no GPU that this FAISS can use: with the extra 'gpu'"),
        ("all", 0, "exact search, named by the encoder alone, runs on a GPU without FAISS"),
        ("cuda:4", 4, r"FAISS sees 4 GPU\(s\), numbered from 0"),
        ("cuda:0,1", 1, r"FAISS sees 1 GPU\(s\), numbered from 0"),
        ("gpu", 4, "is none of auto"),
    ],
)
def test_gpus_that_are_not_there_are_refused(device: str, n_gpus: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_gpus(device, n_gpus, "this FAISS", _WITHOUT_GPUS)


@pytest.mark.skipif(faiss.get_num_gpus() > 0, reason="this FAISS has GPUs")
def test_a_faiss_without_gpus_says_so_when_one_is_named(tmp_path: Path) -> None:
    manifest = write("ivf", corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0)), tmp_path / "index")
    opened = open_ivf_anywhere(tmp_path / "index", manifest, OpenOptions(name="e-ivf", encoder="e", device="auto"))
    assert opened.placement.reason == "FAISS on the CPU, because there is no GPU that this FAISS can use: 63.0 kB of 'e-ivf'"
    assert opened.placement.devices == ("cpu",)
    with pytest.raises(InputError, match="--device cuda:0: there is no GPU that this FAISS can use"):
        open_ivf_anywhere(tmp_path / "index", manifest, OpenOptions(name="e-ivf", encoder="e", device="cuda:0"))


def test_what_does_not_fit_is_refused_with_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    def placement_of(device: str, *free: int) -> tuple[int, ...]:
        monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.free_memory_of_gpus", lambda *_: list(free))
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: len(free))
        monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.count_search_gpus", lambda: len(free))
        options = OpenOptions(name="contriever-ivf", device=device)
        return _choose_gpus(options, 21_015_324 * (768 * 2 + 4))[0]

    assert placement_of("cuda", 80_000_000_000) == (0,)
    assert placement_of("cuda:1,0", 24_000_000_000, 24_000_000_000) == (1, 0)
    assert placement_of("auto", 24_000_000_000, 40_000_000_000) == (1,)
    assert placement_of("auto", 24_000_000_000) == ()
    assert placement_of("cpu", 80_000_000_000) == ()
    with pytest.raises(InputError, match="where 80.0 and 10.0 GB are free: name 5 such GPUs"):
        placement_of("all", 80_000_000_000, 10_000_000_000)
    with pytest.raises(InputError) as raised:
        placement_of("cuda", 24_000_000_000)
    assert str(raised.value) == (
        "32.4 GB of 'contriever-ivf' do not fit on cuda:0, which would have to hold 32.4 GB of vectors and 2.2 GB to work in each, "
        "34.6 GB, where 24.0 GB are free: name 2 such GPUs (--device cuda:0,1,…), or --device cpu"
    )


def test_memory_of_lists_is_that_of_the_pages_which_the_driver_gives() -> None:
    """The 16,384 lists of a float16 index over wiki2018 are 32 GB of codes and ids, but more on a card."""
    sizes = [21_015_324 // 16_384] * 16_384
    assert sum(sizes) * (2 * 768 + 8) / 1e9 == pytest.approx(32.4, abs=0.1)
    assert list_bytes(sizes, 2 * 768) == 16_384 * ((2 << 20) + 1_312 * 8)
    assert list_bytes([1_400], 2 * 768) == (4 << 20) + 1_408 * 8
    assert list_bytes([0, 1], 32) == 32 * 40


def test_an_inverted_file_is_placed_by_the_memory_of_its_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = write("ivf", corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0)), tmp_path / "index")
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.list_bytes", lambda sizes, code_bytes: sum(sizes) * 1_000_000_000)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.count_search_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.free_memory_of_gpus", lambda *_: [80_000_000_000])
    opened = open_ivf_anywhere(tmp_path / "index", manifest, OpenOptions(name="e-ivf", encoder="e", device="auto"))
    assert opened.placement.devices == ("cpu",)
    assert f"{N}.0 GB of vectors" in opened.placement.reason


@pytest.mark.parametrize("device", ["cpu", "mps", "auto", "cuda:0"])
def test_faiss_is_not_asked_for_gpus_where_none_can_be_meant(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken driver would end the process there."""
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.count_search_gpus", lambda: 0)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: pytest.fail("asked"))
    if device == "cuda:0":
        with pytest.raises(InputError, match="--device cuda:0: there is no GPU that this FAISS can use"):
            _choose_gpus(OpenOptions(name="contriever-ivf", device=device), 1e9)
        return
    assert _choose_gpus(OpenOptions(name="contriever-ivf", device=device), 1e9)[0] == ()


def test_a_faiss_that_lacks_a_library_of_cuda_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faiss.py").write_text("raise RuntimeError('faiss-gpu installed but nvidia-cuda-runtime-cu12 is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss")
    with pytest.raises(InputError, match="FAISS is installed, but cannot be loaded: faiss-gpu installed but nvidia-cuda-runtime-cu12"):
        load_faiss.__wrapped__()


@pytest.mark.parametrize("name", ["ivf", "ivfpq"])
@pytest.mark.parametrize("n_gpus", [1, 2, 3, 40])
def test_shares_of_the_lists_together_find_what_the_whole_finds(name: str, n_gpus: int, tmp_path: Path) -> None:
    write(name, corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0)), tmp_path / "index")
    whole = faiss.read_index(str(tmp_path / "index" / INDEX_FILE), faiss.IO_FLAG_MMAP)
    shares = _divide_lists(whole, n_gpus)
    assert [number for lists in shares for number in lists] == list(range(whole.nlist))
    parts = [select_lists(whole, lists) for lists in shares]
    assert sum(part.ntotal for part in parts) == N
    if n_gpus < 4:
        assert max(part.ntotal for part in parts) < 1.3 * N / n_gpus
    queries, settings = clustered(20, DIM, 1), faiss.SearchParametersIVF(nprobe=8)
    found = (part.search(queries, 10, params=settings) for part in parts)
    rows, scores = merge_hits([Hits(rows, scores) for scores, rows in found], len(queries), 10)
    expected = whole.search(queries, 10, params=settings)
    np.testing.assert_array_equal(scores, expected[0])
    if name == "ivf":  # codes of ivfpq are often equal, and so are their scores
        np.testing.assert_array_equal(rows, expected[1])


def test_lists_are_merged_by_score_then_place() -> None:
    one = Hits(np.array([[7, 8, -1]]), np.array([[3.0, 1.0, -np.inf]], dtype=np.float32))
    two = Hits(np.array([[4, 5, 6]]), np.array([[3.0, 2.0, 0.0]], dtype=np.float32))
    positions, scores = merge_hits([one, two], 1, 5)
    assert positions.tolist() == [[4, 7, 5, 8, 6]]
    assert scores.tolist() == [[3, 3, 2, 1, 0]]


def test_shares_are_consecutive_and_equal() -> None:
    assert equal_ranges(10, 3) == [range(3), range(3, 6), range(6, 10)]


@pytest.mark.parametrize(("k", "refine", "asked"), [(LARGEST_K + 1, 0, "k 2,049: FAISS"), (1000, 3, "k 1,000 with refine 3: FAISS")])
def test_more_results_than_a_gpu_can_give_are_refused(k: int, refine: int, asked: str) -> None:
    recipe = dataclasses.replace(NOTHING.recipe, parameters={"refine": refine})
    index = ApproximateIndex(
        dataclasses.replace(NOTHING, recipe=recipe, counts={"rows": 9999, "dim": 2}),
        np.empty(0, dtype=np.int64),
        9999,
        OpenOptions(name="e-ivfpq", encoder="e"),
        lambda queries, k, params: pytest.fail("searched"),
        Placement(("cuda:0",), "as told"),
    )
    with pytest.raises(InputError, match=rf"^{asked} finds at most 2,048 on a GPU; exact search \('e'\) has no such limit"):
        index.search(np.zeros((1, 2), dtype=np.float32), k)


def alloc_failure(reason: str) -> RuntimeError:
    """FAISS's error for an allocation, as in facebookresearch/faiss#2179."""
    return RuntimeError(
        "Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const faiss::gpu::AllocRequest&) at\n"
        "/work/faiss/gpu/StandardGpuResources.cpp:452: Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData "
        f"dev 2 space Device stream 0 size 27648 bytes (cudaMalloc error {reason})"
    )


@pytest.mark.parametrize("is_copying", [True, False])
@pytest.mark.parametrize(
    ("error", "is_lost", "message"),
    [
        (
            alloc_failure("out of memory [2]"),
            False,
            "cuda:2 has too little memory for 'e-ivf': end other programs there, or name more GPUs",
        ),
        (MemoryError("no more"), False, "cuda:2 has too little memory for 'e-ivf'"),
        (alloc_failure("an illegal memory access was encountered [700]"), True, "cuda:2 failed: StandardGpuResources: alloc fail type"),
        (alloc_failure("an illegal memory access was encountered [700]"), False, "cuda:2 failed: StandardGpuResources: alloc fail type"),
    ],
    ids=["memory", "host", "lost", "not lost"],
)
def test_a_gpu_that_fails_is_the_error_that_it_is_with_torch(
    error: Exception, is_lost: bool, message: str, is_copying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both while an index is copied and while it is searched; a fake of FAISS's index on a GPU raises the error."""
    torch = pytest.importorskip("torch")
    asked = list[str]()

    def synchronize(device: str) -> None:
        asked.append(device)
        if is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    class FakeGpuIndex:
        def __init__(self, *_: object) -> None:
            if is_copying:
                raise error

        def search(self, *_: object, **__: object) -> None:
            raise error

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    names = ("StandardGpuResources", "GpuIndexIVFScalarQuantizer", "GpuIndexIVFScalarQuantizerConfig")
    for name, fake in zip(names, (object, FakeGpuIndex, SimpleNamespace), strict=True):
        monkeypatch.setattr(faiss, name, fake, raising=False)
    with pytest.raises(IdxError, match=rf"^{message}.*; start again, or with --device cpu$") as raised:
        _GpuWorkers("e-ivf", [_copy_ivf(None, 2, "e-ivf")]).search(np.zeros((1, DIM), dtype=np.float32), 1, {"nprobe": 1})
    assert isinstance(raised.value, DeviceLost) == is_lost
    assert asked == (["cuda:2"] if "failed" in message else [])

"""Decisions and computations of the GPU indexes that need no GPU; their kernels cannot run here."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import read_rows
from tests.indexer.made_vectors import NOTHING, clustered
from tests.indexer.test_faiss import DIM, N, corpus_vectors, write
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.failures import DeviceLost
from wikidx.base.machine.fit import Placement
from wikidx.base.progress import format_bytes
from wikidx.indexer.base import Hits
from wikidx.indexer.indexes.approximate import LARGEST_K, ApproximateIndex
from wikidx.indexer.indexes.faiss.gpu import (
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
torch = pytest.importorskip("torch", reason="needs the extra 'dense'")


@pytest.fixture
def have_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let there be GPUs with so many GB free."""

    def have(*free: int) -> None:
        monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.count_search_gpus", lambda: len(free))
        monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.free_memory_of_gpus", lambda *_: [n * 10**9 for n in free])
        # A broken driver would end the process where FAISS is asked without need
        monkeypatch.setattr(faiss, "get_num_gpus", lambda: len(free) or pytest.fail("asked"))

    return have


WIKI_BYTES = 21_015_324 * (768 * 2 + 4)


@pytest.mark.parametrize(("device", "free", "expected"), read_rows("indexer/placements.jsonl"))
def test_an_index_is_placed_on_gpus_with_room(
    device: str, free: list[int], expected: list[int] | str, have_gpus: Callable[..., None]
) -> None:
    have_gpus(*free)
    with pytest.raises(InputError, match=re.escape(expected)) if isinstance(expected, str) else nullcontext():
        assert _choose_gpus(OpenOptions(name="contriever-ivf", device=device), WIKI_BYTES)[0] == tuple(expected)


def test_an_inverted_file_says_where_it_is_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, have_gpus: Callable[..., None]) -> None:
    manifest = write("ivf", corpus_vectors(tmp_path / "vectors", clustered(N, DIM, 0)), tmp_path / "index")

    def placement(device: str) -> Placement:
        return open_ivf_anywhere(tmp_path / "index", manifest, OpenOptions(name="e-ivf", encoder="e", device=device)).placement

    have_gpus()
    size = format_bytes((tmp_path / "index" / "index.faiss").stat().st_size)
    on_cpu = f"FAISS on the CPU, because there is no GPU that this FAISS can use: {size} of 'e-ivf'"
    assert placement("auto") == Placement(("cpu",), on_cpu)
    with pytest.raises(InputError, match="--device cuda:0: there is no GPU that this FAISS can use"):
        placement("cuda:0")
    have_gpus(80)
    monkeypatch.setattr("wikidx.indexer.indexes.faiss.gpu.list_bytes", lambda sizes, code_bytes: sum(sizes) * 1_000_000_000)
    assert placement("auto").devices == ("cpu",)
    assert f"{N}.0 GB of vectors" in placement("auto").reason


def test_memory_of_lists_is_that_of_the_pages_which_the_driver_gives() -> None:
    """The 16,384 lists of a float16 index over wiki2018 are 32 GB of codes and ids, but more on a card."""
    sizes = [21_015_324 // 16_384] * 16_384
    assert sum(sizes) * (2 * 768 + 8) / 1e9 == pytest.approx(32.4, abs=0.1)
    assert list_bytes(sizes, 2 * 768) == 16_384 * ((2 << 20) + 1_312 * 8)
    assert list_bytes([1_400], 2 * 768) == (4 << 20) + 1_408 * 8
    assert list_bytes([0, 1], 32) == 32 * 40


def test_a_faiss_without_a_library_of_cuda_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faiss.py").write_text("raise RuntimeError('faiss-gpu installed but nvidia-cuda-runtime-cu12 is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss")
    with pytest.raises(InputError, match="FAISS is installed, but cannot be loaded: faiss-gpu installed but nvidia-cuda-runtime-cu12"):
        load_faiss.__wrapped__()


@pytest.mark.parametrize("name", ["ivf", "ivfpq"])
@pytest.mark.parametrize("n_gpus", [1, 2, 3, 40])
def test_shares_of_the_lists_find_what_the_whole_finds(name: str, n_gpus: int, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("k", "refine", "asked"), [(LARGEST_K + 1, 0, "k 2,049: FAISS"), (1000, 3, "k 1,000 with refine 3: FAISS")])
def test_more_results_than_a_gpu_can_give_are_refused(k: int, refine: int, asked: str) -> None:
    recipe = dataclasses.replace(NOTHING.recipe, parameters={"refine": refine})
    index = ApproximateIndex(
        dataclasses.replace(NOTHING, recipe=recipe, counts={"rows": 9999, "dim": 2}),
        np.empty(0, dtype=np.int64),
        9999,
        OpenOptions(name="e-ivfpq", encoder="e"),
        lambda queries, k, params, scope: pytest.fail("searched"),
        Placement(("cuda:0",), "as told"),
    )
    with pytest.raises(InputError, match=rf"^{asked} finds at most 2,048 on a GPU; exact search \('e'\) has no such limit"):
        index.search(np.zeros((1, 2), dtype=np.float32), k)


# FAISS's error for an allocation, as in facebookresearch/faiss#2179
ALLOC = (
    "Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const faiss::gpu::AllocRequest&) at\n"
    "/work/faiss/gpu/StandardGpuResources.cpp:452: Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData "
    "dev 2 space Device stream 0 size 27648 bytes (cudaMalloc error {})"
)
FULL = "cuda:2 has too little memory for 'e-ivf': end other programs there, or name more GPUs"


@pytest.mark.parametrize("is_copying", [True, False])
@pytest.mark.parametrize(
    ("error", "is_lost", "message"),
    [
        (RuntimeError(ALLOC.format("out of memory [2]")), False, FULL),
        (MemoryError("no more"), False, FULL),
        *((RuntimeError(ALLOC.format("illegal memory access [700]")), is_lost, "cuda:2 failed: StandardGpu") for is_lost in (True, False)),
    ],
    ids=["memory", "host", "lost", "not lost"],
)
def test_a_gpu_that_fails_is_the_error_that_it_is_with_torch(
    error: Exception, is_lost: bool, message: str, is_copying: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both while an index is copied and while it is searched; a fake of FAISS's index on a GPU raises the error."""
    asked = list[str]()

    def fail(*_: object, **__: object) -> None:
        raise error

    def synchronize(device: str) -> None:
        asked.append(device)
        if is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "GpuIndexIVFScalarQuantizerConfig", SimpleNamespace, raising=False)
    make = fail if is_copying else lambda *_: SimpleNamespace(search=fail)
    monkeypatch.setattr(faiss, "GpuIndexIVFScalarQuantizer", make, raising=False)
    with pytest.raises(IdxError, match=rf"^{message}.*; start again, or with --device cpu$") as raised:
        _GpuWorkers("e-ivf", [_copy_ivf(None, 2, "e-ivf")]).search(np.zeros((1, DIM), dtype=np.float32), 1, {"nprobe": 1})
    assert isinstance(raised.value, DeviceLost) == is_lost
    assert asked == (["cuda:2"] if "failed" in message else [])

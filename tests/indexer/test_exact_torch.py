"""The torch engine of exact search, which GPUs run, tested on the CPU.

Scores above a threshold are listed and merged: here by torch, on a GPU by a kernel of Triton.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

from wikidx.base.errors import IdxError  # noqa: E402
from wikidx.indexer.base import NO_ROW, Vectors  # noqa: E402
from wikidx.indexer.indexes.exact import gpu as exact_torch  # noqa: E402
from wikidx.indexer.indexes.exact import gpu_best  # noqa: E402
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_best import BLOCK, TopK, find_select, room, select_by_torch  # noqa: E402
from wikidx.indexer.indexes.keys import best_hits  # noqa: E402

DIM = 24
ROWS = np.random.default_rng(0).normal(size=(300, DIM)).astype(np.float32)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and merges in small data."""
    monkeypatch.setattr(gpu_best, "_LEAST_ROOM", BLOCK)
    monkeypatch.setattr(gpu_best, "_LEAST_ROOMS", BLOCK)
    monkeypatch.setattr(exact_torch, "_TILE_SCORES", 4 * BLOCK)


def shard_of(vectors: NDArray[Any], missing: Any = ()) -> DeviceShard:  # noqa: ANN401
    (shard,) = load_shards(vectors, np.array(missing, dtype=np.int64), ["cpu"])
    return shard


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_scores_do_not_depend_on_the_tile(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS adds up in another order for tiles of another size: on an H100, equal float32 vectors had scores that differed."""
    compute = DeviceShard.scores

    def compute_otherwise(self: DeviceShard, terms: Any, start: int, stop: int) -> Any:  # noqa: ANN401 - torch may be absent
        return compute(self, terms, start, stop) * (1 + 1e-7 * (start // BLOCK % 3))

    monkeypatch.setattr(DeviceShard, "scores", compute_otherwise)
    generator = np.random.default_rng(3)
    shard = shard_of(np.tile(generator.normal(size=(300, DIM)), (10, 1)).astype(stored))
    for dtype in (np.float16, np.float32):
        queries = generator.normal(size=(2, DIM)).astype(dtype).astype(np.float32)
        hits = TorchEngine([shard]).search(queries, 40)
        for rows, scores in zip(hits.rows.reshape(8, 10), hits.scores.reshape(8, 10), strict=True):
            assert rows.tolist() == list(range(rows[0], 3_000, 300))
            assert len(set(scores.tolist())) == 1


def test_tiles_end_where_merges_take_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert room(10, 1_024) == 4_096
    assert room(1_001, 1_024) == 47 * BLOCK  # 6,006 and more
    assert room(10, 1) == 1 << 20
    monkeypatch.setattr(exact_torch, "_TILE_SCORES", 160 * BLOCK * 1_024)
    shard = shard_of(np.zeros((100_000, 2), dtype=np.float16))
    terms = torch.zeros((1_024, 2), dtype=torch.float16)
    starts = []
    best = TopK(10, torch.ones(1_024), lambda *arguments: None)
    for start, scores in shard.tiles([terms], best):
        starts.append(start)
        best.offer(scores, start)
    first = 4_096
    assert starts == [0, first, 4 * first, 4 * first + 20_480, 4 * first + 40_960, 16 * first, 16 * first + 20_480]


@pytest.mark.usefixtures("little_room")
def test_one_tile_of_scores_is_alive_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compute, n_alive, tiles = DeviceShard.scores, list[int](), weakref.WeakSet[Any]()

    def watch(*arguments: Any) -> Any:  # noqa: ANN401 - torch may be absent
        n_alive.append(len(tiles))
        scores = compute(*arguments)
        tiles.add(scores)
        return scores

    monkeypatch.setattr(DeviceShard, "scores", watch)
    shard = shard_of(np.ones((3_000, DIM), dtype=np.float16))
    shard.search(np.ones((2, DIM), dtype=np.float32), 5)
    assert set(n_alive) == {0}
    assert len(n_alive) > 10


def test_without_a_kernel_torch_lists_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wikidx.indexer.indexes.exact.gpu_select", None)
    assert find_select("cpu") is select_by_torch
    find_select.cache_clear()
    with pytest.raises(RuntimeError, match="does not find"):
        gpu_best._try_select(lambda *arguments: None, "cpu", 3 * BLOCK)
    gpu_best._try_select(select_by_torch, "cpu", 3 * BLOCK)
    gpu_best._try_select(select_by_torch, "cpu", 3 * BLOCK + 1)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton comes with PyTorch for GPUs")
def test_the_kernel_finds_what_torch_finds() -> None:
    """In Triton's interpreter, which works without a GPU."""
    code = (
        "from wikidx.indexer.indexes.exact import gpu_best; from wikidx.indexer.indexes.exact.gpu_select import select;"
        "[gpu_best._try_select(select, 'cpu', n) for n in (384, 385, 5_000)]"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)


def test_queries_are_split_to_22_bits() -> None:
    queries = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    shard = shard_of(ROWS.astype(np.float16))
    terms = shard.split_queries(queries)
    assert terms.second is not None
    sums = (terms.first.double() + terms.second.double()) * terms.scales.double()[:, None]
    largest = np.abs(queries).max(axis=1, keepdims=True)
    assert (np.abs(sums.numpy() - queries) <= largest * 2.0**-22).all()
    assert shard.split_queries(queries.astype(np.float16).astype(np.float32)).second is None
    whole = shard_of(ROWS).split_queries(queries)
    np.testing.assert_array_equal(whole.first.numpy(), queries)
    assert whole.second is None
    assert (whole.scales == 1).all()


def test_vectors_are_as_on_disk_and_shared_out_evenly() -> None:
    vectors = np.arange(700, dtype=np.float16).reshape(100, 7)
    shards = load_shards(vectors, np.empty(0, dtype=np.int64), ["cpu"] * 3)
    assert [shard.vectors.dtype for shard in shards] == [torch.float16] * 3
    assert [len(shard.vectors) for shard in shards] == [33, 33, 34]
    np.testing.assert_array_equal(np.concatenate([shard.vectors.numpy() for shard in shards]), vectors)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory: 2 GiB"), r"cuda:1 has too little memory for exact search: end other programs"),
        (torch.AcceleratorError("CUDA error: device lost\nmore"), r"cuda:1 failed: CUDA error: device lost; start again"),
        (RuntimeError("Cannot re-initialize CUDA in forked subprocess"), r"cuda:1 failed: Cannot re-initialize CUDA"),
    ],
    ids=["memory", "gone", "fork"],
)
def test_failures_of_a_device_become_one_line(error: RuntimeError, message: str) -> None:
    with pytest.raises(IdxError, match=message) as raised, exact_torch._gpu_errors("cuda:1"):
        raise error
    assert "\n" not in str(raised.value)


def made_case(generator: np.random.Generator) -> tuple[NDArray[np.float16], Vectors, int, NDArray[np.int64]]:
    """Return made-up float16 vectors of some kind, float32 queries, k, and rows without a vector."""
    n, dim, n_queries = int(generator.integers(1, 400)), int(generator.integers(1, 40)), int(generator.integers(1, 5))
    vectors = generator.normal(size=(n, dim)).astype(np.float16)
    kind = generator.integers(5)
    if kind == 1:  # close scores
        vectors = (1 + 0.01 * vectors.astype(np.float32)).astype(np.float16)
    elif kind == 2:  # equal vectors
        vectors = vectors[generator.integers(0, max(1, n // 10), n)]
    elif kind == 3:
        vectors[:] = 0
    queries = (generator.normal(size=(n_queries, dim)) * 10.0 ** generator.integers(-20, 21)).astype(np.float32)
    queries[generator.random(n_queries) < 0.1] = 0
    missing = np.flatnonzero(generator.random(n) < generator.choice([0, 0.1, 0.9]))
    return vectors, queries, int(generator.integers(1, n + 1)), missing


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("n_cases", [100, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_ranks_by_first_terms_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch, n_cases: int) -> None:
    monkeypatch.setattr(exact_torch, "_MAX_RESCORED", 2_000)
    n_exact = n_again = 0
    for seed in range(n_cases):
        generator = np.random.default_rng(seed)
        vectors, queries, k, missing = made_case(generator)
        monkeypatch.setattr(exact_torch, "_SPARE_CANDIDATES", int(generator.integers(0, 9)))
        shard = shard_of(vectors, missing)
        terms = shard.split_queries(queries)
        scores = (torch.from_numpy(vectors).float() * terms.scaled[:, None]).sum(dim=2) * terms.scales[:, None]
        scores[:, torch.from_numpy(missing)] = -torch.inf
        order = scores.argsort(dim=1, descending=True, stable=True)[:, : min(k, len(vectors) - len(missing))]
        is_exact = torch.zeros(len(queries), dtype=torch.bool)
        if terms.second is not None:
            is_exact = shard._rank_and_rescore(terms, k)[1]
        hits = TorchEngine([shard]).search(queries, k)
        found = torch.from_numpy(hits.rows)[:, : order.shape[1]]
        assert (hits.rows[:, order.shape[1] :] == NO_ROW).all()
        assert torch.equal(found[is_exact], order[is_exact]), seed
        values = torch.from_numpy(hits.scores)[:, : order.shape[1]]
        assert torch.equal(values[is_exact], scores.gather(1, order)[is_exact]), seed
        least = 1e-6 * np.linalg.norm(queries.astype(np.float64), axis=1).max() * max(1.0, float(shard._largest_norm))
        np.testing.assert_allclose(scores.gather(1, found).numpy(), scores.gather(1, order).numpy(), rtol=0, atol=least)
        n_exact, n_again = n_exact + int(is_exact.sum()), n_again + int((~is_exact).sum())
    assert n_exact > n_cases
    assert n_again > n_cases // 8


def test_a_best_row_behind_all_candidates_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_torch, "_SPARE_CANDIDATES", 2)
    unit = 2.0**-12  # lost in the first term of the query
    query = np.array([[1 + unit, 8, 1]], dtype=np.float32)
    first_by_terms, between, best = (-1, 1 / 8, 0), (-1, 1 / 8, -1.4 * unit), (1, -1 / 8, -1.5 * unit)
    vectors = np.array([first_by_terms, *[between] * 5, best], dtype=np.float16)
    hits = TorchEngine([shard_of(vectors)]).search(query, 1)
    assert hits.rows.tolist() == [[6]]
    assert hits.scores[0, 0] == pytest.approx(-0.5 * unit, rel=1e-3)


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_no_product_has_a_matrix_that_cublas_cannot_index(n_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = shard_of(ROWS.astype(np.float16))
    monkeypatch.setattr(exact_torch, "_MAX_PRODUCT", 24 * BLOCK * n_blocks + 5)
    terms = shard.split_queries(np.ones((1, 24), dtype=np.float32))
    tiles = list(shard.tiles([terms.first], TopK(1, terms.scales, select_by_torch)))
    assert [start for start, _ in tiles] == list(range(0, 300, n_blocks * BLOCK))


def test_loading_switches_tf32_off() -> None:
    code = (
        "import numpy, torch; from wikidx.indexer.indexes.exact.gpu import load_shards;"
        "before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled();"
        "load_shards(numpy.zeros((4, 8), dtype=numpy.float32), numpy.empty(0, dtype=numpy.int64), ['cpu']);"
        "print(before, (torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled()))"
    )
    environment = {**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "(True, True) (False, False)\n"


def test_nan_and_infinity_are_no_results_and_equal_scores_go_to_the_lower_row() -> None:
    scores = torch.tensor([[torch.nan, 1.0, -torch.inf, 2.0, 1.0], [-0.0, 0.0, torch.nan, -1.0, -torch.inf]])
    best = TopK(3, torch.tensor([1.0, 0.5]), select_by_torch)
    best.offer(scores, 7)
    hits = best_hits(best.keys()[0].numpy(), 3)
    assert hits.rows.tolist() == [[10, 8, 11], [7, 8, 10]]
    assert hits.scores.tolist() == [[2.0, 1.0, 1.0], [0.0, 0.0, -0.5]]

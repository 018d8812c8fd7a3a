"""Properties specific to the torch engine, which GPUs run, tested on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

from wikidx.base.errors import IdxError  # noqa: E402
from wikidx.indexer.base import NO_ROW, Vectors  # noqa: E402
from wikidx.indexer.indexes.exact import gpu as exact_torch  # noqa: E402
from wikidx.indexer.indexes.exact import gpu_best  # noqa: E402
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_best import BLOCK, TopK, select_by_torch  # noqa: E402
from wikidx.indexer.indexes.keys import best_hits  # noqa: E402

NONE = np.empty(0, dtype=np.int64)


def shard_of(stored: str) -> DeviceShard:
    (shard,) = load_shards(np.random.default_rng(0).normal(size=(300, 24)).astype(stored), NONE, ["cpu"])
    return shard


def test_queries_of_float16_are_not_split_and_others_add_up_to_22_bits() -> None:
    queries = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    shard = shard_of("float16")
    terms = shard.split_queries(queries)
    assert terms.second is not None
    sums = (terms.first.double() + terms.second.double()) * terms.scales.double()[:, None]
    largest = np.abs(queries).max(axis=1, keepdims=True)
    assert (np.abs(sums.numpy() - queries) <= largest * 2.0**-22).all()
    assert shard.split_queries(queries.astype(np.float16).astype(np.float32)).second is None
    whole = shard_of("float32").split_queries(queries)
    np.testing.assert_array_equal(whole.first.numpy(), queries)
    assert whole.second is None
    assert (whole.scales == 1).all()


def test_vectors_are_as_on_disk_and_shared_out_evenly() -> None:
    vectors = np.arange(700, dtype=np.float16).reshape(100, 7)
    shards = load_shards(vectors, NONE, ["cpu"] * 3)
    assert [shard.vectors.dtype for shard in shards] == [torch.float16] * 3
    assert [len(shard.vectors) for shard in shards] == [33, 33, 34]
    np.testing.assert_array_equal(np.concatenate([shard.vectors.numpy() for shard in shards]), vectors)


@pytest.mark.parametrize("k", [1, 5, 200])
def test_best_of_tiles_is_the_sorted_prefix(k: int) -> None:
    scores = torch.randint(-50, 50, (3, 8 * BLOCK), generator=torch.Generator().manual_seed(0)).float()
    scores[0, 5], scores[1, 7], scores[2] = torch.nan, -torch.inf, 0.0
    scores[2, ::2] = -0.0
    scales = torch.tensor([1.0, 0.5, 2.0])
    best = TopK(k, scales, select_by_torch)
    for start in range(0, 8 * BLOCK, 2 * BLOCK):
        best.offer(scores[:, start : start + 2 * BLOCK], start)
    hits = best_hits(best.keys()[0].numpy(), k)
    scaled = np.nan_to_num((scores * scales[:, None]).numpy(), nan=-np.inf, neginf=-np.inf)
    rows = np.argsort(-scaled, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(hits.rows, rows)
    np.testing.assert_array_equal(hits.scores, np.take_along_axis(scaled, rows, axis=1))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            r"cuda:1 has too little memory for exact search: end other programs",
        ),
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


@pytest.mark.parametrize("n_cases", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_ranks_by_first_terms_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch, n_cases: int) -> None:
    monkeypatch.setattr(gpu_best, "_LEAST_ROOM", BLOCK)
    monkeypatch.setattr(gpu_best, "_LEAST_ROOMS", BLOCK)
    monkeypatch.setattr(exact_torch, "_TILE_SCORES", 4 * BLOCK)
    monkeypatch.setattr(exact_torch, "_MAX_RESCORED", 2_000)
    n_exact = n_again = 0
    for seed in range(n_cases):
        generator = np.random.default_rng(seed)
        vectors, queries, k, missing = made_case(generator)
        monkeypatch.setattr(exact_torch, "_SPARE_CANDIDATES", int(generator.integers(0, 9)))
        (shard,) = load_shards(vectors, missing, ["cpu"])
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


def test_a_best_row_that_the_first_terms_rank_behind_all_candidates_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_torch, "_SPARE_CANDIDATES", 2)
    unit = 2.0**-12  # lost in the first term of the query
    query = np.array([[1 + unit, 8, 1]], dtype=np.float32)
    first_by_terms, between, best = (-1, 1 / 8, 0), (-1, 1 / 8, -1.4 * unit), (1, -1 / 8, -1.5 * unit)
    vectors = np.array([first_by_terms, *[between] * 5, best], dtype=np.float16)
    hits = TorchEngine(load_shards(vectors, NONE, ["cpu"])).search(query, 1)
    assert hits.rows.tolist() == [[6]]
    assert hits.scores[0, 0] == pytest.approx(-0.5 * unit, rel=1e-3)


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_no_product_has_a_matrix_that_cublas_cannot_index(n_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = shard_of("float16")
    monkeypatch.setattr(exact_torch, "_MAX_PRODUCT", 24 * BLOCK * n_blocks + 5)
    terms = shard.split_queries(np.ones((1, 24), dtype=np.float32))
    tiles = list(shard.tiles([terms.first], TopK(1, terms.scales, select_by_torch)))
    assert [start for start, _ in tiles] == list(range(0, 300, n_blocks * BLOCK))


def test_loading_switches_tf32_off_where_a_container_has_switched_it_on() -> None:
    code = (
        "import numpy, torch; from wikidx.indexer.indexes.exact.gpu import load_shards;"
        "before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled();"
        "load_shards(numpy.zeros((4, 8), dtype=numpy.float32), numpy.empty(0, dtype=numpy.int64), ['cpu']);"
        "print(before, (torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.cudnn_sdp_enabled()))"
    )
    environment = {**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "(True, True) (False, False)\n"

"""Properties specific to the torch engine, which GPUs run, tested on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

from wikidx.corpora.errors import IdxError  # noqa: E402
from wikidx.indexer.indexes.exact import gpu as exact_torch  # noqa: E402
from wikidx.indexer.indexes.exact.best_keys import best_hits  # noqa: E402
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_best import BLOCK, TopK  # noqa: E402

NONE = np.empty(0, dtype=np.int64)


def shard_of(stored: str) -> DeviceShard:
    (shard,) = load_shards(np.random.default_rng(0).normal(size=(300, 24)).astype(stored), NONE, ["cpu"])
    return shard


def test_queries_of_float16_are_not_split_and_others_add_up_to_22_bits() -> None:
    queries = np.random.default_rng(1).normal(size=(5, 24)).astype(np.float32)
    shard = shard_of("float16")
    factors, scales = shard.factors(queries)
    assert factors.shape == (10, 24)
    halves = factors.double() * scales.double().repeat(2)[:, None]
    largest = np.abs(queries).max(axis=1, keepdims=True)
    assert (np.abs((halves[:5] + halves[5:]).numpy() - queries) <= largest * 2.0**-22).all()
    short, _ = shard.factors(queries.astype(np.float16).astype(np.float32))
    assert short.shape == (5, 24)
    whole, scales = shard_of("float32").factors(queries)
    np.testing.assert_array_equal(whole.numpy(), queries)
    assert (scales == 1).all()


def test_zero_queries_have_factors() -> None:
    factors, scales = shard_of("float16").factors(np.zeros((2, 24), dtype=np.float32))
    assert not factors.any()
    assert torch.isfinite(scales).all()


def test_vectors_are_as_on_disk_and_shared_out_evenly() -> None:
    vectors = np.arange(700, dtype=np.float16).reshape(100, 7)
    shards = load_shards(vectors, NONE, ["cpu"] * 3)
    assert [shard.vectors.dtype for shard in shards] == [torch.float16] * 3
    assert [len(shard.vectors) for shard in shards] == [33, 33, 34]
    np.testing.assert_array_equal(np.concatenate([shard.vectors.numpy() for shard in shards]), vectors)


def test_more_devices_than_rows() -> None:
    ones = np.ones((2, 3), dtype=np.float32)
    hits = TorchEngine(load_shards(ones, NONE, ["cpu"] * 5)).search(ones[:1], 2)
    assert hits.rows.tolist() == [[0, 1]]


@pytest.mark.parametrize("k", [1, 5, 200])
def test_best_of_tiles_is_the_sorted_prefix(k: int) -> None:
    scores = torch.randint(-50, 50, (3, 8 * BLOCK), generator=torch.Generator().manual_seed(0)).float()
    scores[0, 5], scores[1, 7], scores[2] = torch.nan, -torch.inf, 0.0
    scores[2, ::2] = -0.0
    scales = torch.tensor([1.0, 0.5, 2.0])
    best = TopK(k, scales)
    for start in range(0, 8 * BLOCK, 2 * BLOCK):
        best.offer(scores[:, start : start + 2 * BLOCK].contiguous(), start)
    hits = best_hits(best.keys(), k)
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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_on_a_gpu_as_on_the_cpu(stored: str) -> None:
    generator = np.random.default_rng(2)
    vectors, queries = generator.normal(size=(50_000, 96)).astype(stored), generator.normal(size=(40, 96)).astype(np.float32)
    missing = np.array([0, 12_500, 49_999])
    for k in (1, 100, 5000):
        expected, found = (TorchEngine(load_shards(vectors, missing, [device])).search(queries, k) for device in ("cpu", "cuda:0"))
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
        assert (found.rows == expected.rows).mean() > 0.99


def test_no_product_has_a_matrix_that_cublas_cannot_index(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = shard_of("float16")
    monkeypatch.setattr(exact_torch, "_MAX_PRODUCT", 24 * BLOCK * 2 + 5)
    query = np.ones((1, 24), dtype=np.float32)
    factors, _ = shard.factors(query)
    tiles = list(shard.tiles(factors, 1))
    assert [start for start, _ in tiles] == list(range(0, 300, 2 * BLOCK))


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


def test_a_tile_is_released_before_the_next_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, compute, n_alive = shard_of("float16"), DeviceShard._scores, list[int]()
    tiles = weakref.WeakSet[Any]()

    def watch(*arguments: Any) -> Any:  # noqa: ANN401 - torch may be absent
        n_alive.append(len(tiles))
        scores = compute(*arguments)
        tiles.add(scores)
        return scores

    monkeypatch.setattr(DeviceShard, "_scores", watch)
    monkeypatch.setattr(exact_torch, "_MAX_PRODUCT", 24 * BLOCK)
    shard.search(np.random.default_rng(1).normal(size=(2, 24)).astype(np.float32), 5)
    assert n_alive == [0, 0, 0]

"""Top-k of exact search by torch: scores above a threshold are listed and merged; here by torch, on a GPU by a kernel of Triton."""

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

from wikidx.indexer.base import Vectors  # noqa: E402
from wikidx.indexer.indexes.exact import gpu as exact_torch  # noqa: E402
from wikidx.indexer.indexes.exact import gpu_best  # noqa: E402
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_best import BLOCK, TopK, find_select, room, select_by_torch  # noqa: E402
from wikidx.indexer.indexes.keys import best_hits  # noqa: E402

DIM = 24


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and merges in small data."""
    monkeypatch.setattr(gpu_best, "_LEAST_ROOM", BLOCK)
    monkeypatch.setattr(gpu_best, "_LEAST_ROOMS", BLOCK)
    monkeypatch.setattr(exact_torch, "_TILE_SCORES", 4 * BLOCK)


def shard_of(vectors: NDArray[Any], missing: Any = ()) -> DeviceShard:  # noqa: ANN401
    (shard,) = load_shards(vectors, np.array(missing, dtype=np.int64), ["cpu"])
    return shard


def best_rows(vectors: NDArray[Any], queries: Vectors, k: int, missing: Any = ()) -> NDArray[np.int64]:  # noqa: ANN401
    """The rows by brute force, in float64."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    scores[:, np.array(missing, dtype=np.int64)] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("k", [1, 10, 700, 2_996])
def test_many_tiles_and_merges_find_what_brute_force_finds(stored: str, k: int) -> None:
    generator = np.random.default_rng(k)
    vectors = generator.integers(-9, 10, size=(3_000, DIM)).astype(stored)  # whole numbers: sums are exact, and many are equal
    queries = generator.integers(-9, 10, size=(3, DIM)).astype(np.float32)
    queries[1] = 0
    missing = [0, 1, 500, 2_999]
    found = best_hits(shard_of(vectors, missing).search(queries, k), k)
    np.testing.assert_array_equal(found.rows, best_rows(vectors, queries, k, missing))


@pytest.mark.usefixtures("little_room")
def test_queries_with_more_rows_than_there_is_room_for_are_ranked_again() -> None:
    """For two of the three, each row is better than all before it, and is found."""
    vectors = np.zeros((3_000, DIM), dtype=np.float16)
    vectors[:, 0] = np.arange(3_000) - 1_000
    queries = np.zeros((3, DIM), dtype=np.float32)
    queries[:, 0] = 1, -1, 2
    shard = shard_of(vectors)
    terms = shard.split_queries(queries)
    best = TopK(5, terms.scales, select_by_torch)
    for start, scores in shard.tiles([terms.first], best):
        best.offer(scores, start)
    assert best.keys()[1].tolist() == [0, 2]
    assert best_hits(shard.search(queries, 5), 5).rows.tolist() == [
        [2_999 - i for i in range(5)],
        list(range(5)),
        [2_999 - i for i in range(5)],
    ]


def test_nan_and_infinity_are_no_results_and_equal_scores_go_to_the_lower_row() -> None:
    scores = torch.tensor([[torch.nan, 1.0, -torch.inf, 2.0, 1.0], [-0.0, 0.0, torch.nan, -1.0, -torch.inf]])
    best = TopK(3, torch.tensor([1.0, 0.5]), select_by_torch)
    best.offer(scores, 7)
    hits = best_hits(best.keys()[0].numpy(), 3)
    assert hits.rows.tolist() == [[10, 8, 11], [7, 8, 10]]
    assert hits.scores.tolist() == [[2.0, 1.0, 1.0], [0.0, 0.0, -0.5]]


def test_what_torch_examines_at_a_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.rand((4, 9 * BLOCK - 5), generator=torch.Generator().manual_seed(0))
    thresholds, (whole, parts) = torch.tensor([0.5, 0.9, 0.0, 2.0]), (TopK(700, torch.ones(4), select_by_torch) for _ in range(2))
    select_by_torch(scores, thresholds, whole._found, 3)
    monkeypatch.setattr(gpu_best, "_MOST_EXAMINED", BLOCK)
    select_by_torch(scores, thresholds, parts._found, 3)
    assert whole._found.counts.tolist() == (scores > thresholds[:, None]).sum(dim=1).tolist()
    for line, n_found in enumerate(whole._found.counts.tolist()):
        assert torch.equal(parts._found.keys[line, :n_found], whole._found.keys[line, :n_found])


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


def test_without_a_kernel_that_works_torch_lists_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
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

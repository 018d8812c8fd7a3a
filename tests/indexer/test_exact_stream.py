"""Exact search that lists scores above a threshold, as on a GPU with Triton; here a function of torch takes the kernel's place."""

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

from wikidx.indexer.indexes.exact import gpu as exact_torch  # noqa: E402
from wikidx.indexer.indexes.exact import gpu_stream  # noqa: E402
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_best import BLOCK, TopK, encode_keys  # noqa: E402
from wikidx.indexer.indexes.exact.gpu_stream import Found, StreamedTopK, find_select, room, streamed_ranges  # noqa: E402
from wikidx.indexer.indexes.keys import best_hits  # noqa: E402

DIM = 24


def select(scores: Any, thresholds: Any, found: Found, first_row: int) -> None:  # noqa: ANN401 - torch may be absent
    """The kernel's work by torch."""
    lines, columns = (scores > thresholds[:, None]).nonzero(as_tuple=True)
    n_found = torch.bincount(lines, minlength=len(scores))
    places = found.counts[lines] + torch.arange(len(lines)) - (n_found.cumsum(0) - n_found)[lines]
    has_room = places < found.keys.shape[1]
    keys = encode_keys(scores[lines, columns], first_row + columns)
    found.keys[lines[has_room], places[has_room]] = keys[has_room]
    found.counts.add_(n_found)


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and merges in small data."""
    monkeypatch.setattr(gpu_stream, "_LEAST_ROOM", BLOCK)
    monkeypatch.setattr(gpu_stream, "_LEAST_ROOMS", BLOCK)
    monkeypatch.setattr(exact_torch, "_TILE_SCORES", 4 * BLOCK)


def streaming(vectors: NDArray[Any], missing: Any = ()) -> DeviceShard:  # noqa: ANN401
    (shard,) = load_shards(vectors, np.array(missing, dtype=np.int64), ["cpu"])
    shard.select = select
    return shard


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("stored", ["float16", "float32"])
@pytest.mark.parametrize("k", [1, 10, 700, 3_000])
def test_what_is_listed_is_what_is_picked(stored: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = list[int]()
    monkeypatch.setattr(TopK, "offer", lambda *arguments: offered.append(1))
    generator = np.random.default_rng(k)
    vectors = generator.normal(size=(3_000, DIM)).astype(stored)
    vectors[2_000:2_100] = vectors[0]  # ties
    queries = generator.normal(size=(3, DIM)).astype(np.float32)
    queries[1] = 0
    shard = streaming(vectors, [0, 1, 500, 2_999])
    found = best_hits(shard.search(queries, k), k)
    assert not offered
    monkeypatch.undo()
    expected = best_hits(DeviceShard(shard.vectors, 0, shard._missing).search(queries, k), k)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.usefixtures("little_room")
def test_more_rows_than_there_is_room_for_are_picked_another_way() -> None:
    """Each row is better than all before it, and is found."""
    vectors = np.zeros((2_000, DIM), dtype=np.float16)
    vectors[:, 0] = np.arange(2_000)
    queries = np.ones((2, DIM), dtype=np.float32)
    shard = streaming(vectors)
    terms = shard.split_queries(queries)
    streamed = StreamedTopK(5, terms.scales, select)
    for start, scores in shard.streamed_tiles([terms.first], 5):
        streamed.offer(scores, start)
    assert streamed.keys() is None
    hits = best_hits(shard.search(queries, 5), 5)
    assert hits.rows.tolist() == [[1_999, 1_998, 1_997, 1_996, 1_995]] * 2
    np.testing.assert_array_equal(hits.scores, hits.rows)


def test_nan_and_infinity_are_no_results_and_equal_scores_go_to_the_lower_row() -> None:
    scores = torch.tensor([[torch.nan, 1.0, -torch.inf, 2.0, 1.0], [-0.0, 0.0, torch.nan, -1.0, -torch.inf]])
    best = StreamedTopK(3, torch.tensor([1.0, 0.5]), select)
    best.offer(scores, 7)
    keys = best.keys()
    assert keys is not None
    hits = best_hits(keys.numpy(), 3)
    assert hits.rows.tolist() == [[10, 8, 11], [7, 8, 10]]
    assert hits.scores.tolist() == [[2.0, 1.0, 1.0], [0.0, 0.0, -0.5]]


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_scores_do_not_depend_on_the_tile(stored: str, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS adds up in another order for tiles of another size: on an H100, equal float32 vectors had scores that differed."""
    compute = DeviceShard._scores

    def compute_otherwise(self: DeviceShard, terms: Any, start: int, stop: int) -> Any:  # noqa: ANN401 - torch may be absent
        return compute(self, terms, start, stop) * (1 + 1e-7 * (start // BLOCK % 3))

    monkeypatch.setattr(DeviceShard, "_scores", compute_otherwise)
    generator = np.random.default_rng(3)
    shard = streaming(np.tile(generator.normal(size=(300, DIM)), (10, 1)).astype(stored))
    shard.select = select if listed else None
    for dtype in (np.float16, np.float32):
        queries = generator.normal(size=(2, DIM)).astype(dtype).astype(np.float32)
        hits = TorchEngine([shard]).search(queries, 40)
        for rows, scores in zip(hits.rows.reshape(8, 10), hits.scores.reshape(8, 10), strict=True):
            assert rows.tolist() == list(range(rows[0], 3_000, 300))
            assert len(set(scores.tolist())) == 1


def test_tiles_end_where_merges_take_place() -> None:
    first = room(10, 1_024)
    assert first == 4_096
    assert room(1_001, 1_024) == 47 * BLOCK  # 6,006 and more
    assert room(10, 1) == 1 << 20
    ranges = list(streamed_ranges(100_000, first, 20_000))
    starts = [0, first, 4 * first, 36_384, 56_384, 16 * first, 85_536]
    assert ranges == list(zip(starts, [*starts[1:], 100_000], strict=True))
    assert list(streamed_ranges(5, first, 20_000)) == [(0, 5)]


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize(("listed", "most_alive"), [(True, 0), (False, 1)])
def test_a_tile_is_released_before_the_next_or_the_one_after_is_computed(
    listed: bool, most_alive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, n_alive, tiles = DeviceShard._scores, list[int](), weakref.WeakSet[Any]()

    def watch(*arguments: Any) -> Any:  # noqa: ANN401 - torch may be absent
        n_alive.append(len(tiles))
        scores = compute(*arguments)
        tiles.add(scores)
        return scores

    monkeypatch.setattr(DeviceShard, "_scores", watch)
    monkeypatch.setattr(exact_torch, "_MAX_PRODUCT", DIM * BLOCK)
    shard = streaming(np.ones((3_000, DIM), dtype=np.float16))
    shard.select = select if listed else None
    shard.search(np.ones((2, DIM), dtype=np.float32), 5)
    assert set(n_alive) == {0, most_alive}
    assert len(n_alive) > 10


def test_without_a_kernel_that_works_torch_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wikidx.indexer.indexes.exact.gpu_select", None)
    assert find_select("cpu") is None
    find_select.cache_clear()
    with pytest.raises(RuntimeError, match="does not find"):
        gpu_stream._try_select(lambda *arguments: None, "cpu", 3 * BLOCK)
    gpu_stream._try_select(select, "cpu", 3 * BLOCK)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton comes with PyTorch for GPUs")
def test_the_kernel_finds_what_torch_finds() -> None:
    """In Triton's interpreter, which works without a GPU."""
    code = (
        "from wikidx.indexer.indexes.exact import gpu_stream; from wikidx.indexer.indexes.exact.gpu_select import select;"
        "[gpu_stream._try_select(select, 'cpu', n) for n in (384, 385, 5_000)]"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)

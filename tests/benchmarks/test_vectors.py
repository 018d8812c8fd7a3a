from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.vectors import products_of, unit_vectors
from tests.benchmarks.test_smoke import rows


@pytest.mark.slow  # ten seconds
def test_beside_faiss(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    found = rows("vectors", "--sizes", "3000x64", "--batches", 1, 9, "--k", 10, "--rounds", 1, folder=tmp_path)
    assert [(row["vectors"], row["dim"], row["batch"], row["k"]) for row in found] == [(3000, 64, 1, 10), (3000, 64, 9, 10)]
    for row in found:
        assert row["same rows %"] > 95
        assert 0 < row["difference"] < 1e-5
        assert row["idx × faiss"] == pytest.approx(row["idx q/s"] / row["faiss q/s"])


@pytest.mark.slow  # ten seconds
def test_opening(tmp_path: Path) -> None:
    found = rows("vectors", "--opening", "--bytes", 30_000_000, folder=tmp_path)
    assert [(row["stored"], row["vectors"]) for row in found] == [("float32", 9_765), ("float16", 19_531)]
    for row in found:
        assert row["open s (median)"] < 1
        assert row["RSS MB"] < 200
        assert row["RSS MB"] - row["(before)"] < 15  # not the vectors


def test_what_a_gpu_does_runs_on_a_cpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")
    from benchmarks import vectors_gpu

    make, steps = vectors_gpu.random_vectors, list[object]()

    def watch(device: str, n: int) -> object:
        steps.append(n)
        return make(device, n)

    monkeypatch.setattr(vectors_gpu, "random_vectors", watch)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: steps.append("empty"))
    (half, full) = vectors_gpu.measure_device("cpu", 5000, [3], [10], 1)
    assert steps[:2] == ["empty", 5000]  # a card has no room for the vectors beside what the rates were measured with
    assert (half["queries"], full["queries"]) == ("float16", "float32")
    for row in (half, full):
        difference, share = row["difference"], row["of bandwidth %"]
        assert isinstance(difference, float)
        assert isinstance(share, float)
        assert difference < 1e-5
        assert share > 0


def test_products_are_those_of_the_vectors_as_stored() -> None:
    vectors, queries = unit_vectors(20_000, 8, 0), unit_vectors(2, 8, 1)
    expected = queries.astype(np.float64) @ vectors.astype(np.float16).astype(np.float64).T
    np.testing.assert_array_equal(products_of(vectors, queries, "float16"), expected)
    np.testing.assert_allclose((vectors**2).sum(axis=1), 1, rtol=1e-5)

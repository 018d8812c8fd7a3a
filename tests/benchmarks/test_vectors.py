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


def test_products_are_those_of_the_vectors_as_stored() -> None:
    vectors, queries = unit_vectors(20_000, 8, 0), unit_vectors(2, 8, 1)
    expected = queries.astype(np.float64) @ vectors.astype(np.float16).astype(np.float64).T
    np.testing.assert_array_equal(products_of(vectors, queries, "float16"), expected)
    np.testing.assert_allclose((vectors**2).sum(axis=1), 1, rtol=1e-5)

"""Exact scores of given rows, from vectors mapped into memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.made_vectors import clustered, vectors_manifest
from wikidx.indexer.base import Stored
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors, open_corpus_vectors
from wikidx.indexer.vectors.file import VectorFile


@pytest.fixture(params=["float32", "float16"])
def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> CorpusVectors:
    stored: Stored = request.param
    VectorFile(tmp_path, 1000, stored).write(range(1000), clustered(1000, 8, 0))
    return open_corpus_vectors(tmp_path, vectors_manifest(tmp_path, (1000, 8), stored))


def test_scores_are_the_products_with_the_rows_named(vectors: CorpusVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = clustered(20, 8, 1)
    rows = np.random.default_rng(0).integers(-1, 1000, size=(20, 30))
    vectors = dataclasses.replace(vectors, missing=np.unique(rows[rows >= 0])[:5])
    stored = vectors.array[:]
    expected = np.where(
        (rows < 0) | np.isin(rows, vectors.missing),
        -np.inf,
        np.einsum("qd,qcd->qc", queries.astype(np.float64), stored[rows].astype(np.float64)),
    )
    np.testing.assert_allclose(vectors.scores(queries, rows), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("wikidx.indexer.vectors.corpus_vectors._CANDIDATES_AT_ONCE", 70)  # two queries at a time
    np.testing.assert_allclose(vectors.scores(queries, rows), expected, rtol=1e-5, atol=1e-5)


def test_vectors_replaced_later_are_not_mixed_with_those_that_were_opened(vectors: CorpusVectors) -> None:
    queries, rows = clustered(1, 8, 1), np.arange(1000)[np.newaxis]
    expected = vectors.scores(queries, rows)
    VectorFile(vectors.folder, 1000, vectors.stored).path.unlink()
    VectorFile(vectors.folder, 1000, vectors.stored).write(range(1000), np.zeros((1000, 8), dtype=np.float32))
    np.testing.assert_array_equal(vectors.scores(queries, rows), expected)

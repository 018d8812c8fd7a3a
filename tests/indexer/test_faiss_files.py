"""FAISS indexes that hold their vectors: the ids and vectors that FAISS itself gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.indexer.embedding_files import DIM, NUMBERS, VECTORS, N, check_refused, read

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")

FLAT = ("Flat", "SQfp16", "SQbf16", "HNSW16", "HNSW16_SQfp16", "IDMap,Flat", "IDMap2,HNSW16", "IDMap,SQfp16")
LISTS = {"IVF16,Flat": N, "IVF1,Flat": N, "IVF16_HNSW8,Flat": N, "IVF64,Flat": 20}  # of the last, most lists are empty


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("factory", FLAT)
def test_vectors_are_those_that_faiss_gives(factory: str, metric: int, tmp_path: Path) -> None:
    index = faiss.index_factory(DIM, factory, metric)
    index.train(VECTORS)
    index.add_with_ids(VECTORS, NUMBERS) if "IDMap" in factory else index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "index"))
    ids, vectors = read(tmp_path / "index")
    np.testing.assert_array_equal(vectors, getattr(index, "index", index).reconstruct_n(0, N))
    assert ids == ([*map(str, NUMBERS)] if "IDMap" in factory else None)


@pytest.mark.parametrize("has_map", [False, True])
@pytest.mark.parametrize(("factory", "n"), LISTS.items())
def test_vectors_of_lists_are_those_that_faiss_gives(factory: str, n: int, has_map: bool, tmp_path: Path) -> None:
    index = faiss.index_factory(DIM, factory)
    index.train(VECTORS)
    index.add_with_ids(VECTORS[:n], NUMBERS[:n])
    index.set_direct_map_type(faiss.DirectMap.Hashtable if has_map else faiss.DirectMap.NoMap)
    faiss.write_index(index, str(tmp_path / "index"))
    ids, vectors = read(tmp_path / "index")
    numbers = np.array(ids, dtype=np.int64)
    assert sorted(numbers) == sorted(NUMBERS[:n])
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    np.testing.assert_array_equal(vectors, index.reconstruct_batch(numbers))
    content = (tmp_path / "index").read_bytes()
    for end in (60, len(content) // 3, len(content) - 1):
        check_refused(tmp_path, {"index": content[:end]}, "cut off|corrupt")

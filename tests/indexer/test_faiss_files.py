"""FAISS indexes that hold their vectors: the ids and vectors that FAISS itself gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.indexer.embedding_files import DIM, NUMBERS, VECTORS, N, check_refused, read

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")

FACTORIES = (
    *("Flat", "SQfp16", "SQbf16", "HNSW16", "HNSW16_SQfp16", "IVF16,Flat", "IVF1,Flat", "IVF16_HNSW8,Flat"),
    *("IDMap,Flat", "IDMap2,HNSW16", "IDMap,SQfp16"),
)


def reconstruct(index: Any) -> tuple[NDArray[np.int64] | None, NDArray[np.float32]]:  # noqa: ANN401 - FAISS's
    """Return the ids, if there are any, and the vectors as FAISS reconstructs them."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIDMap):
        return faiss.vector_to_array(index.id_map), reconstruct(index.index)[1]
    if isinstance(index, faiss.IndexIVF):
        lists = [index.invlists.list_size(number) for number in range(index.nlist)]
        ids = [faiss.rev_swig_ptr(index.invlists.get_ids(number), size).copy() for number, size in enumerate(lists) if size]
        return np.concatenate(ids), np.stack([reconstructed(index, int(id_)) for id_ in np.concatenate(ids)])
    return None, index.reconstruct_n(0, N)


def reconstructed(index: Any, id_: int) -> NDArray[np.float32]:  # noqa: ANN401 - FAISS's
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    found: NDArray[np.float32] = index.reconstruct(id_)
    return found


def made(factory: str, metric: int = faiss.METRIC_INNER_PRODUCT, *, has_ids: bool) -> Any:  # noqa: ANN401 - FAISS's
    index = faiss.index_factory(DIM, factory, metric)
    index.train(VECTORS)
    index.add_with_ids(VECTORS, NUMBERS) if has_ids else index.add(VECTORS)
    return index


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("factory", FACTORIES)
def test_ids_and_vectors_are_those_that_faiss_gives(factory: str, metric: int, tmp_path: Path) -> None:
    for has_ids in (True, False) if "IVF" in factory else ("IDMap" in factory,):
        index = made(factory, metric, has_ids=has_ids)
        faiss.write_index(index, str(tmp_path / "index"))
        ids, vectors = read(tmp_path / "index")
        expected_ids, expected = reconstruct(index)
        assert ids == (None if expected_ids is None else [*map(str, expected_ids)])
        np.testing.assert_array_equal(vectors, expected)


def test_lists_with_a_map_and_few_of_them_are_read(tmp_path: Path) -> None:
    """A map of ids in the file, array or hash table; and sizes as they are written if most of the lists are empty."""
    for kind in (faiss.DirectMap.Array, faiss.DirectMap.Hashtable):
        index = faiss.index_factory(DIM, "IVF64,Flat")
        index.train(VECTORS)
        index.add(VECTORS[:20])
        index.set_direct_map_type(kind)
        faiss.write_index(index, str(tmp_path / "index"))
        ids, vectors = read(tmp_path / "index")
        np.testing.assert_array_equal(vectors, VECTORS[[*map(int, ids or ())]])
        assert sorted(map(int, ids or ())) == list(range(20))


@pytest.mark.parametrize("factory", ["HNSW16", "IVF16,Flat", "SQfp16", "IDMap,HNSW16"])
def test_what_is_cut_off_or_damaged_is_refused_in_a_line(factory: str, tmp_path: Path) -> None:
    content = faiss.serialize_index(made(factory, has_ids="IDMap" in factory)).tobytes()
    for end in (10, 60, len(content) // 3, len(content) - 1):
        check_refused(tmp_path, {"index": content[:end]}, "cut off|corrupt|begins with")
    check_refused(tmp_path, {"index": content[:8] + b"\xff" * 8 + content[16:]}, "is corrupt: it says -1 vectors of dimension 8")

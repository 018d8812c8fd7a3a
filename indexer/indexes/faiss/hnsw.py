"""FAISS's HNSW graph over float16 vectors, built in memory: it takes the memory of the index and up to 2 GB more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wikidx.base.artifacts.manifest import Parameters
from wikidx.indexer.indexes.approximate import save_missing
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, IndexKind, Size
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_hnsw
from .library import INDEX_FILE, check_half, load_faiss, write_index

FORMAT_VERSION = 2

_M = 32  # links per vector in each layer; twice as many in the lowest layer
_EF_CONSTRUCTION = 200
_EF_SEARCH = 128
_LINK_BYTES = 4
_LINKS = 2 * _M + 2  # links per vector over all layers: 2 * M + 1.03 on average, rounded up


def _parameters(size: Size) -> Parameters:
    return {"codec": "float16", "m": _M, "ef_construction": _EF_CONSTRUCTION, "ef_search": _EF_SEARCH}


def _write(build: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    index = _empty_graph(build.source)
    for rows, vectors in build.source.batches():
        check_half(load_faiss().downcast_index(index.storage).sa_encode(vectors), rows)
        index.add(vectors)
        build.progress(index.ntotal, len(build.source))
    write_index(build.staging / INDEX_FILE, index)
    save_missing(build)
    return build.source.counts()


def _empty_graph(vectors: CorpusVectors) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an empty graph whose arrays have capacity for all vectors; growing them would double the memory."""
    faiss = load_faiss()
    index = faiss.IndexHNSWSQ(vectors.dim, faiss.ScalarQuantizer.QT_fp16, _M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.is_trained = True  # float16 needs no training
    storage = faiss.downcast_index(index.storage)
    for array, n_elements in ((storage.codes, len(vectors) * storage.code_size), (index.hnsw.neighbors, len(vectors) * _LINKS)):
        array.resize(n_elements)
        array.resize(0)  # keeps the capacity
    return index


def _estimate(size: Size) -> Estimate:
    n, dim, _ = size
    index_bytes = n * (2 * dim + _LINK_BYTES * _LINKS + 16)
    return Estimate(index_bytes, 0.6e9 + index_bytes)


HNSW = IndexKind(
    name="hnsw", source="vectors", format_version=FORMAT_VERSION, parameters=_parameters, write=_write, open=open_hnsw, estimate=_estimate
)

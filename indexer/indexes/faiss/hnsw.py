"""FAISS's HNSW graph over float16 vectors. The build takes the memory of the index and up to 2 GB more.

The graph is saved every ten minutes. An interrupted build resumes from the last save.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.durable import sync
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.artifacts.manifest import Parameters
from wikidx.base.errors import StagingCorrupt
from wikidx.indexer.indexes.approximate import save_missing
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, IndexKind, Size
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_hnsw
from .library import INDEX_FILE, check_half, faiss_errors, load_faiss, write_index

FORMAT_VERSION = 2

_M = 32  # links per vector in each layer; twice as many in the lowest layer
_EF_CONSTRUCTION = 200
_EF_SEARCH = 128
_GRAPH = "graph.faiss"
_SAVE_EVERY_S = 600.0
_LINK_BYTES = 4
_LINKS = 2 * _M + 2  # links per vector over all layers: 2 * M + 1.03 on average, rounded up


def _parameters(size: Size) -> Parameters:
    return {"codec": "float16", "m": _M, "ef_construction": _EF_CONSTRUCTION, "ef_search": _EF_SEARCH}


def _write(build: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    checkpoint = build.staging / INTERMEDIATE / _GRAPH
    checkpoint.parent.mkdir(exist_ok=True)
    index = _start_graph(build, checkpoint)
    n_resumed, n_seen, last_save = index.ntotal, 0, time.monotonic()
    for rows, vectors in build.source.batches():
        n_seen += len(rows)
        if n_seen > n_resumed:
            check_half(load_faiss().downcast_index(index.storage).sa_encode(vectors), rows)
            index.add(vectors)
        if index.ntotal != max(n_seen, n_resumed):
            raise StagingCorrupt(f"{checkpoint} has {n_resumed:,} vectors, which is no whole number of batches")
        if time.monotonic() - last_save > _SAVE_EVERY_S:
            _save(index, checkpoint)
            last_save = time.monotonic()
        build.progress(index.ntotal, len(build.source))
    write_index(build.staging / INDEX_FILE, index)
    save_missing(build)
    return build.source.counts()


def _start_graph(build: IndexBuild[CorpusVectors], checkpoint: Path) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return the graph of an interrupted build, or an empty graph.

    Its arrays have capacity for all vectors; growing them would double the memory.
    """
    faiss = load_faiss()
    index = faiss.IndexHNSWSQ(build.source.dim, faiss.ScalarQuantizer.QT_fp16, _M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.is_trained = True  # float16 needs no training
    storage = faiss.downcast_index(index.storage)
    for array, n_elements in ((storage.codes, len(build.source) * storage.code_size), (index.hnsw.neighbors, len(build.source) * _LINKS)):
        array.resize(n_elements)
        array.resize(0)  # keeps the capacity
    if checkpoint.exists():
        with faiss_errors(checkpoint, is_intermediate=True):
            _copy(faiss.read_index(utf8_path(checkpoint), faiss.IO_FLAG_MMAP_IFC), index)
    return index


def _copy(checkpoint: Any, index: Any) -> None:  # noqa: ANN401
    """Copy a saved graph into an empty graph. The arrays keep their capacity."""
    faiss = load_faiss()
    if not isinstance(checkpoint, faiss.IndexHNSWSQ) or checkpoint.d != index.d or checkpoint.metric_type != index.metric_type:
        raise RuntimeError("it holds another kind of index")
    storage, checkpoint_storage, graph, checkpoint_graph = (
        faiss.downcast_index(index.storage),
        faiss.downcast_index(checkpoint.storage),
        index.hnsw,
        checkpoint.hnsw,
    )
    for array, checkpoint_array, n_bytes in (
        (storage.codes, checkpoint_storage.codes, 1),
        (graph.neighbors, checkpoint_graph.neighbors, _LINK_BYTES),
        (graph.levels, checkpoint_graph.levels, 4),
        (graph.offsets, checkpoint_graph.offsets, 8),
    ):
        array.resize(checkpoint_array.size())
        faiss.memcpy(array.data(), checkpoint_array.data(), n_bytes * checkpoint_array.size())
    graph.entry_point, graph.max_level = checkpoint_graph.entry_point, checkpoint_graph.max_level
    index.ntotal = storage.ntotal = checkpoint.ntotal


def _save(index: Any, path: Path) -> None:  # noqa: ANN401
    """Save the unfinished graph atomically."""
    unfinished = path.with_name(f".{path.name}.tmp")
    write_index(unfinished, index)
    unfinished.replace(path)
    sync(path.parent)


def _estimate(size: Size) -> Estimate:
    n, dim, _ = size
    index_bytes = n * (2 * dim + _LINK_BYTES * _LINKS + 16)
    return Estimate(2 * index_bytes, 0.6e9 + index_bytes)


HNSW = IndexKind(name="hnsw", format_version=FORMAT_VERSION, parameters=_parameters, write=_write, open=open_hnsw, estimate=_estimate)

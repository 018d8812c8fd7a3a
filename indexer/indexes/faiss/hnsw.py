"""FAISS's HNSW graph over float16 vectors. It is built in memory: the index, and at most 2 GB more.

The graph is saved every ten minutes; an interrupted build resumes from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wikidx.corpora.artifacts.building import PIECES
from wikidx.corpora.artifacts.durable import sync
from wikidx.corpora.artifacts.manifest import Parameters
from wikidx.corpora.errors import PiecesDamaged
from wikidx.indexer.indexes.kinds import Cost, IndexBuild, IndexKind, Size
from wikidx.indexer.machine.threads import n_threads
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_hnsw, save_missing
from .library import INDEX_FILE, check_half, damage_named, load_faiss, write_index

FORMAT_VERSION = 2

_M = 32  # links per vector; twice as many in the lowest layer
_EF_CONSTRUCTION = 200
_EF_SEARCH = 128
_GRAPH = "graph.faiss"
_SAVE_EVERY_S = 600.0
_LINK_BYTES = 4
_LINKS = 2 * _M + 2  # per vector over all layers, on average 2 * M + 1.03
_COMPARISON_S = (40e-9, 0.65e-9)  # seconds per comparison on one core: base, and per component


def _parameters(size: Size) -> Parameters:
    return {"codec": "float16", "m": _M, "ef_construction": _EF_CONSTRUCTION, "ef_search": _EF_SEARCH}


def _write(plan: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    saved = plan.staging / PIECES / _GRAPH
    saved.parent.mkdir(exist_ok=True)
    index = _begun(plan, saved)
    n_kept, n_seen, last_save = index.ntotal, 0, time.monotonic()
    for rows, vectors in plan.source.batches():
        n_seen += len(rows)
        if n_seen > n_kept:
            check_half(load_faiss().downcast_index(index.storage).sa_encode(vectors), rows)
            index.add(vectors)
        if index.ntotal != max(n_seen, n_kept):
            raise PiecesDamaged(f"{saved} has {n_kept:,} vectors, which is no whole number of batches")
        if time.monotonic() - last_save > _SAVE_EVERY_S:
            _save(index, saved)
            last_save = time.monotonic()
        plan.progress(index.ntotal, len(plan.source))
    write_index(plan.staging / INDEX_FILE, index)
    save_missing(plan)
    return plan.source.counts()


def _begun(plan: IndexBuild[CorpusVectors], saved: Path) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return the graph of an interrupted build, or an empty one, with capacity for all vectors: growing would double the memory."""
    faiss = load_faiss()
    index = faiss.IndexHNSWSQ(plan.source.dim, faiss.ScalarQuantizer.QT_fp16, _M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _EF_CONSTRUCTION
    index.is_trained = True  # float16 needs no training
    storage = faiss.downcast_index(index.storage)
    for array, wanted in ((storage.codes, len(plan.source) * storage.code_size), (index.hnsw.neighbors, len(plan.source) * _LINKS)):
        array.resize(wanted)
        array.resize(0)  # keeps the capacity
    if saved.exists():
        with damage_named(saved, is_piece=True):
            _copy(faiss.read_index(str(saved), faiss.IO_FLAG_MMAP_IFC), index)
    return index


def _copy(saved: Any, index: Any) -> None:  # noqa: ANN401
    """Copy a saved graph into an empty one, which keeps its capacity."""
    faiss = load_faiss()
    if not isinstance(saved, faiss.IndexHNSWSQ) or saved.d != index.d or saved.metric_type != index.metric_type:
        raise RuntimeError("it holds another kind of index")
    storage, saved_storage, graph, saved_graph = (
        faiss.downcast_index(index.storage),
        faiss.downcast_index(saved.storage),
        index.hnsw,
        saved.hnsw,
    )
    for array, saved_array, n_bytes in (
        (storage.codes, saved_storage.codes, 1),
        (graph.neighbors, saved_graph.neighbors, _LINK_BYTES),
        (graph.levels, saved_graph.levels, 4),
        (graph.offsets, saved_graph.offsets, 8),
    ):
        array.resize(saved_array.size())
        faiss.memcpy(array.data(), saved_array.data(), n_bytes * saved_array.size())
    graph.entry_point, graph.max_level = saved_graph.entry_point, saved_graph.max_level
    index.ntotal = storage.ntotal = saved.ntotal


def _save(index: Any, path: Path) -> None:  # noqa: ANN401
    """Save the graph so far atomically."""
    unfinished = path.with_name(f".{path.name}.tmp")
    write_index(unfinished, index)
    unfinished.replace(path)
    sync(path.parent)


def _cost(size: Size) -> Cost:
    n, dim, _ = size
    index_bytes = n * (2 * dim + _LINK_BYTES * _LINKS + 16)
    n_compared = n * _EF_CONSTRUCTION * math.log2(n + 2)
    once, per_component = _COMPARISON_S
    return Cost(2 * index_bytes, 0.6e9 + index_bytes, n_compared * (once + per_component * dim) / n_threads())


HNSW = IndexKind(name="hnsw", format_version=FORMAT_VERSION, parameters=_parameters, write=_write, open=open_hnsw, cost=_cost)

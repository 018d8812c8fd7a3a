"""FAISS indexes on the CPU. They are memory-mapped: they open without delay, and processes share their memory.

The exception is ``ivfpq``. Opening copies its codes into this process's memory, in the layout of FAISS's fast scan: half a byte per four
components of a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.base.artifacts.checked_files import CheckedFile, CheckedFiles
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import ArtifactCorrupt, InputError
from wikidx.base.machine.fit import Placement
from wikidx.base.machine.memory import available_bytes
from wikidx.base.progress import format_bytes
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Scores, Vectors
from wikidx.indexer.indexes.approximate import ApproximateIndex, RawSearch
from wikidx.indexer.indexes.kinds import OpenOptions
from wikidx.indexer.scope import Scope
from wikidx.indexer.vectors.corpus_vectors import read_missing

from .library import INDEX_FILE, faiss_errors, load_faiss

ID_BYTES = 8  # size of a row number; a list stores one with each code
ONLY_CPU = Placement(("cpu",), "FAISS on the CPU, which alone has this kind: memory-mapped")


def open_ivf(path: Path, manifest: Manifest, options: OpenOptions, placement: Placement) -> ApproximateIndex:
    """Open an inverted file; raises as ``open_mapped`` does. ``placement`` has the reason for the CPU."""
    file = CheckedFiles(path, manifest)[INDEX_FILE]
    is_pq = "subquantizers" in manifest.recipe.parameters
    if is_pq or options.rows is not None:  # opening reads the whole file
        file.check_all()
    mapped = map_ivf(path, manifest, options)
    no_rows = np.empty(0, dtype=np.int64)
    if options.rows is None and not is_pq:
        return ApproximateIndex(manifest, no_rows, mapped.ntotal, options, _search_lists(mapped, file), placement)
    index = _to_fast_scan(path, mapped) if is_pq else mapped

    def search(queries: Vectors, k: int, settings: Mapping[str, int], scope: Scope | None) -> tuple[Scores, Rows]:
        scores, rows = index.search(queries, k, params=load_faiss().SearchParametersIVF(nprobe=settings["nprobe"], sel=_selector(scope)))
        return scores, rows

    return ApproximateIndex(manifest, no_rows, mapped.ntotal, options, search, placement)


def _selector(scope: Scope | None) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return FAISS's selector of the ids in a scope; None selects all."""
    return None if scope is None else load_faiss().IDSelectorBitmap(scope.words.view(np.uint8))


def _search_lists(index: Any, file: CheckedFile) -> RawSearch:  # noqa: ANN401
    """Return a search of a mapped inverted file. It chooses the lists, verifies their checksums, and searches them.

    Raises:
        ArtifactCorrupt: the file is corrupt outside the lists.
    """
    faiss = load_faiss()
    lists, entry_bytes = faiss.downcast_InvertedLists(index.invlists).lists, index.code_size + ID_BYTES
    all_lists = [lists.at(number) for number in range(index.nlist)]
    starts = np.array([each.offset for each in all_lists], dtype=np.int64)
    stops = starts + np.array([each.size * entry_bytes for each in all_lists], dtype=np.int64)
    file.check(np.array([0]), np.array([len(file.content) - index.ntotal * entry_bytes]))

    def search(queries: Vectors, k: int, settings: Mapping[str, int], scope: Scope | None) -> tuple[Scores, Rows]:
        distances, chosen = index.quantizer.search(queries, settings["nprobe"])
        probed = np.unique(chosen)
        file.check(starts[probed], stops[probed])
        scores, rows = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        query_pointer, lists, coarse, *results = map(
            faiss.swig_ptr, (np.ascontiguousarray(queries, dtype=np.float32), chosen, distances, scores, rows)
        )
        parameters = faiss.SearchParametersIVF(nprobe=settings["nprobe"], sel=_selector(scope))
        index.search_preassigned_c(len(queries), query_pointer, k, lists, coarse, *results, False, parameters)
        return scores, rows

    return search


def map_ivf(path: Path, manifest: Manifest, options: OpenOptions) -> Any:  # noqa: ANN401 - FAISS has no types
    """Open the file of an inverted file, or a range of its rows; raises as ``open_mapped`` does."""
    mapped = open_mapped(path, manifest, load_faiss().IO_FLAG_MMAP)
    # FAISS's prefetching threads cost more than they gain if the lists are already in memory
    load_faiss().downcast_InvertedLists(mapped.invlists).prefetch_nthread = 0
    return mapped if options.rows is None else select_ivf_range(path / INDEX_FILE, mapped, options.rows)


def open_hnsw(path: Path, manifest: Manifest, options: OpenOptions) -> ApproximateIndex:
    """Open an HNSW graph; raises as ``open_mapped`` does, and ``InputError`` for a range of rows."""
    if options.rows is not None:
        raise InputError(
            f"'{options.name}' is one graph over all vectors, which cannot be searched in parts: use exact search ('{options.encoder}'), "
            "or an index of kind ivf, ivfpq or int8"
        )
    faiss = load_faiss()
    index = open_mapped(path, manifest, faiss.IO_FLAG_MMAP_IFC)
    files = CheckedFiles(path, manifest)

    def search(queries: Vectors, k: int, settings: Mapping[str, int], scope: Scope | None) -> tuple[Scores, Rows]:
        files[INDEX_FILE].check_all()
        parameters = faiss.SearchParametersHNSW(efSearch=settings["ef_search"], sel=_selector(scope))
        scores, positions = index.search(queries, k, params=parameters)
        return scores, positions

    return ApproximateIndex(manifest, read_missing(files, manifest), index.ntotal, options, search, ONLY_CPU)


def open_mapped(path: Path, manifest: Manifest, flags: int) -> Any:  # noqa: ANN401 - FAISS has no types
    """Open and check the file of an index, mapped according to ``flags`` (FAISS's IO_FLAG_*).

    Raises:
        ArtifactCorrupt: FAISS cannot read the file, or the index does not match its manifest.
        MissingExtraError: FAISS is not installed.
    """
    with faiss_errors(path / INDEX_FILE):
        index = load_faiss().read_index(utf8_path(path / INDEX_FILE), flags)
    actual = (index.ntotal, index.d, index.metric_type)
    expected = (manifest.count("vectors"), manifest.count("dim"), load_faiss().METRIC_INNER_PRODUCT)
    if actual != expected:
        raise ArtifactCorrupt(
            f"{path / INDEX_FILE} holds {actual[0]:,} vectors of dimension {actual[1]} and metric {actual[2]} where its manifest says "
            f"{expected[0]:,}, {expected[1]} and {expected[2]}: build it again with --force"
        )
    return index


def _to_fast_scan(path: Path, mapped: Any) -> Any:  # noqa: ANN401
    """Return a copy of an ``ivfpq`` index in the layout of FAISS's fast scan."""
    check_memory(path, mapped.ntotal, mapped.code_size + ID_BYTES, "use an index that stays on the disk, of kind ivf or int8")
    with faiss_errors(path / INDEX_FILE):
        index = load_faiss().IndexIVFPQFastScan(mapped)
    index.referenced_objects = [mapped]  # ``mapped`` owns the lists' centroids
    return index


def select_ivf_range(path: Path, mapped: Any, rows: range) -> Any:  # noqa: ANN401
    """Return an inverted file in memory with the entries of a mapped inverted file for a range of rows, in the same lists.

    It has the quantisers of the whole index, and therefore its scores.

    Raises:
        InputError: there is too little memory.
        ArtifactCorrupt: FAISS cannot read the lists.
    """
    faiss = load_faiss()
    check_memory(path, len(rows), mapped.code_size + ID_BYTES)
    part = copy_without_lists(mapped)
    with faiss_errors(path):
        mapped.copy_subset_to(part, faiss.InvertedLists.SUBSET_TYPE_ID_RANGE, rows.start, rows.stop)
    return part


def copy_without_lists(index: Any) -> Any:  # noqa: ANN401
    """Return an empty inverted file that shares the quantisers of ``index`` and keeps ``index`` alive."""
    faiss = load_faiss()
    if isinstance(index, faiss.IndexIVFPQ):
        empty = faiss.IndexIVFPQ(index.quantizer, index.d, index.nlist, index.pq.M, index.pq.nbits, index.metric_type)
        empty.pq, empty.by_residual = index.pq, index.by_residual
    else:
        empty = faiss.IndexIVFScalarQuantizer(index.quantizer, index.d, index.nlist, index.sq.qtype, index.metric_type, index.by_residual)
        empty.sq = index.sq
    empty.is_trained, empty.own_fields = True, False
    empty.referenced_objects = [index]
    return empty


def check_memory(path: Path, n_vectors: int, vector_bytes: int, advice: str = "use more shards, or a node with more memory") -> None:
    """Raise ``InputError`` unless vectors of an index fit into the available memory."""
    needed, available = n_vectors * vector_bytes, available_bytes()
    if needed > available:
        raise InputError(
            f"opening {path} takes {format_bytes(needed)} of memory ({n_vectors:,} vectors × {vector_bytes} bytes), of which "
            f"{format_bytes(available)} can be had: {advice}"
        )

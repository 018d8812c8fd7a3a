"""FAISS indexes on the CPU, memory-mapped: they open at once, and processes share them.

The exception is ``ivfpq``: on opening, its codes are regrouped for FAISS's fast scan in this process's memory (half a byte for
every four components of each vector).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import ArtifactDamaged, InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Placement, Scores, Vectors
from wikidx.indexer.indexes.kinds import IndexBuild, OpenOptions
from wikidx.indexer.page_checks import CheckedFile, CheckedFiles, save_array
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors
from wikidx.indexer.vectors.file import MISSING

from .index import Contents, FaissIndex, contents_of
from .library import INDEX_FILE, damage_named, load_faiss, read_mapped
from .row_range import ID_BYTES, check_memory, flat_range, ivf_range, places_of

ONLY_CPU = Placement(("cpu",), "FAISS on the CPU, which alone has this kind: memory-mapped")


def open_flat(path: Path, manifest: Manifest, opening: OpenOptions, placement: Placement = ONLY_CPU) -> FaissIndex:
    """Open a flat index; ``placement`` gives the reason for the CPU. Raises as ``open_mapped`` does."""
    index, first_place, contents, check = open_flat_part(path, manifest, opening)

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        check()
        scores, places = index.search(queries, k)
        return scores, np.where(places < 0, places, places + first_place)

    return FaissIndex(contents, opening, search, placement)


def open_flat_part(path: Path, manifest: Manifest, opening: OpenOptions) -> tuple[Any, int, Contents, Callable[[], None]]:
    """Open the file of a flat index, or a range of its rows; raises as ``open_mapped`` does.

    Returns:
        FAISS's index, the place of its first vector among all vectors of the index, its contents, and a check to call before any of it
        is read: it raises ``ArtifactDamaged`` if the file is corrupt.
    """
    mapped = open_mapped(path, manifest, load_faiss().IO_FLAG_MMAP_IFC)
    missing, file = read_missing(path, manifest), CheckedFiles(path, manifest)[INDEX_FILE]
    if opening.rows is None:
        return mapped, 0, contents_of(manifest, missing, mapped.ntotal), file.check_all
    places = places_of(opening.rows, missing)
    codes = len(file.content) - mapped.ntotal * mapped.code_size
    file.check(np.array([0, codes + places.start * mapped.code_size]), np.array([codes, codes + places.stop * mapped.code_size]))
    part = flat_range(path / INDEX_FILE, mapped, places)
    return part, places.start, contents_of(manifest, missing, part.ntotal), lambda: None


def open_ivf(path: Path, manifest: Manifest, opening: OpenOptions, placement: Placement) -> FaissIndex:
    """Open an inverted file; ``placement`` gives the reason for the CPU. Raises as ``open_mapped`` does."""
    file = CheckedFiles(path, manifest)[INDEX_FILE]
    is_pq = "subquantizers" in manifest.recipe.parameters
    if is_pq or opening.rows is not None:  # all of it is read on opening
        file.check_all()
    mapped = open_ivf_part(path, manifest, opening)
    contents = contents_of(manifest, _none(), mapped.ntotal)
    if opening.rows is None and not is_pq:
        return FaissIndex(contents, opening, _search_lists(mapped, file), placement)
    index = _for_fast_scan(path, mapped) if is_pq else mapped

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        scores, rows = index.search(queries, k, params=load_faiss().SearchParametersIVF(nprobe=settings["nprobe"]))
        return scores, rows

    return FaissIndex(contents, opening, search, placement)


def _search_lists(index: Any, file: CheckedFile) -> Callable[[Vectors, int, Mapping[str, int]], tuple[Scores, Rows]]:  # noqa: ANN401
    """Return FAISS's search of a mapped inverted file in two steps: choose the lists and, once these are verified, search them.

    Raises:
        ArtifactDamaged: a part outside the lists is corrupt.
    """
    faiss = load_faiss()
    lists, entry_bytes = faiss.downcast_InvertedLists(index.invlists).lists, index.code_size + ID_BYTES
    there = [lists.at(number) for number in range(index.nlist)]
    starts = np.array([some.offset for some in there], dtype=np.int64)
    stops = starts + np.array([some.size * entry_bytes for some in there], dtype=np.int64)
    file.check(np.array([0]), np.array([len(file.content) - index.ntotal * entry_bytes]))

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        nearness, chosen = index.quantizer.search(queries, settings["nprobe"])
        some = np.unique(chosen)
        file.check(starts[some], stops[some])
        scores, rows = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        given, lists, coarse, *found = map(
            faiss.swig_ptr, (np.ascontiguousarray(queries, dtype=np.float32), chosen, nearness, scores, rows)
        )
        parameters = faiss.SearchParametersIVF(nprobe=settings["nprobe"])
        index.search_preassigned_c(len(queries), given, k, lists, coarse, *found, False, parameters)
        return scores, rows

    return search


def open_ivf_part(path: Path, manifest: Manifest, opening: OpenOptions) -> Any:  # noqa: ANN401 - FAISS has no types
    """Open the file of an inverted file, or a range of its rows; raises as ``open_mapped`` does."""
    mapped = open_mapped(path, manifest, load_faiss().IO_FLAG_MMAP)
    # Threads that prefetch lists cost more than they gain if the lists are in memory already
    load_faiss().downcast_InvertedLists(mapped.invlists).prefetch_nthread = 0
    return mapped if opening.rows is None else ivf_range(path / INDEX_FILE, mapped, opening.rows)


def open_hnsw(path: Path, manifest: Manifest, opening: OpenOptions) -> FaissIndex:
    """Open a graph; raises as ``open_mapped`` does, and ``InputError`` for a range of rows."""
    if opening.rows is not None:
        raise InputError(
            f"'{opening.name}' is one graph over all vectors, which cannot be searched in parts: use exact search ('{opening.encoder}'), "
            "or an index of kind ivf, ivfpq, sq8 or flat-fp16"
        )
    faiss = load_faiss()
    index = open_mapped(path, manifest, faiss.IO_FLAG_MMAP_IFC)
    file = CheckedFiles(path, manifest)[INDEX_FILE]

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        file.check_all()
        scores, places = index.search(queries, k, params=faiss.SearchParametersHNSW(efSearch=settings["ef_search"]))
        return scores, places

    return FaissIndex(contents_of(manifest, read_missing(path, manifest), index.ntotal), opening, search, ONLY_CPU)


def open_mapped(path: Path, manifest: Manifest, flags: int) -> Any:  # noqa: ANN401 - FAISS has no types
    """Open an index's file in FAISS's format, mapped according to ``flags`` (FAISS's IO_FLAG_*).

    Raises:
        ArtifactDamaged: FAISS cannot read it, or it does not match its manifest.
        MissingExtraError: FAISS is not installed.
    """
    index = read_mapped(path / INDEX_FILE, flags=flags)
    found = (index.ntotal, index.d, index.metric_type)
    promised = (manifest.count("vectors"), manifest.count("dim"), load_faiss().METRIC_INNER_PRODUCT)
    if found != promised:
        raise ArtifactDamaged(
            f"{path / INDEX_FILE} holds {found[0]:,} vectors of dimension {found[1]} and metric {found[2]} where its manifest says "
            f"{promised[0]:,}, {promised[1]} and {promised[2]}: build it again with --force"
        )
    return index


def save_missing(plan: IndexBuild[CorpusVectors]) -> None:
    """Write the rows without a vector, if any, beside an index that knows its vectors only by their places."""
    if len(plan.source.missing):
        save_array(plan.staging / MISSING, plan.source.missing)


def read_missing(path: Path, manifest: Manifest) -> Rows:
    """Return the rows that ``save_missing`` wrote.

    Raises:
        ArtifactDamaged: the file is corrupt or invalid.
    """
    n_missing = manifest.count("rows") - manifest.count("vectors")
    if not n_missing:
        return _none()
    return CheckedFiles(path, manifest)[MISSING].array("int64", (n_missing,))[:]


def _for_fast_scan(path: Path, mapped: Any) -> Any:  # noqa: ANN401
    """Return an inverted file of product-quantised codes in the layout of FAISS's fast scan."""
    check_memory(path, mapped.ntotal, mapped.code_size + ID_BYTES, "use an index that stays on the disk, of kind ivf or sq8")
    with damage_named(path / INDEX_FILE):
        index = load_faiss().IndexIVFPQFastScan(mapped)
    index.referenced_objects = [mapped]  # it has the lists' centroids
    return index


def _none() -> Rows:
    return np.empty(0, dtype=np.int64)

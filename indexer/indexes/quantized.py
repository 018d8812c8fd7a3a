"""Quantized vectors, whose best rows by approximate score are rescored exactly from the vectors.

``int8`` has a byte per component: the component divided by its scale, which is 1/127 of its largest absolute value in the corpus. A query
is multiplied by the scales and rounded to at most 16 bits, so that a score is a sum of 32-bit integers. ``binary`` has a bit per component:
its sign. A query's score is its inner product with the signs, 1 or -1, by FAISS's fast scan; comparing with the signs of the query, as the
Hamming distance does, needs about four times as many candidates for the same recall. Both are searched on the CPU only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import CheckedFiles, save_array
from wikidx.base.artifacts.manifest import Manifest
from wikidx.base.errors import StagingCorrupt
from wikidx.base.machine.fit import Placement
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Scores, Vectors
from wikidx.indexer.scope import NO_WORDS, Scope
from wikidx.indexer.vectors.corpus_vectors import BATCH_ROWS, CorpusVectors, missing_within, read_missing
from wikidx.indexer.vectors.file import VECTORS, Codes, VectorFile

from .approximate import ApproximateIndex, save_missing, select
from .exact.cpu import CpuEngine
from .faiss.cpu import check_memory
from .faiss.library import load_faiss
from .kinds import Estimate, IndexBuild, IndexKind, OpenOptions, Size

FORMAT_VERSION = 1
SCALES = "scales.npy"

_PLACEMENT = Placement(("cpu",), "quantized vectors on the CPU, which alone has this kind")
_LARGEST_CODE, _LARGEST_SUM, _LARGEST_INT16 = 127, 2**31 - 1, 2**15 - 1
_INT8_REFINE, _BINARY_REFINE = 4, 16  # candidates rescored for each result
_MEMORY_BYTES = 0.6e9
_SIGNS = 4  # components of one of FAISS's codes, which has 16 values


def _write_int8(build: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    path = build.staging / SCALES
    if not path.exists():
        largest = np.zeros(build.source.dim, dtype=np.float32)
        for _, vectors in build.source.batches():
            np.maximum(largest, np.abs(vectors).max(axis=0, initial=0), out=largest)
        save_array(path, np.where(largest > 0, largest / _LARGEST_CODE, 1).astype(np.float32))
    try:
        scales = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise StagingCorrupt.of(error, path, f"{path} cannot be read: {error}") from error
    return _write_codes(build, "int8", lambda vectors: np.rint(vectors / scales).astype(np.int8))


def _write_binary(build: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    return _write_codes(build, "uint8", lambda vectors: np.packbits(vectors > 0, axis=1, bitorder="little"))


def _write_codes(build: IndexBuild[CorpusVectors], stored: Codes, encode: Callable[[Vectors], NDArray[Any]]) -> Mapping[str, int]:
    """Write the code of every row; an interrupted build resumes with the first range of rows that is not on disk."""
    source = build.source
    file = VectorFile(build.staging, source.n_rows, stored, BATCH_ROWS)
    for rows in file.unfinished_ranges():
        file.write(rows, encode(source.read(np.arange(rows.start, rows.stop))))
        build.progress(rows.stop, source.n_rows)
    save_missing(build)
    return source.counts()


def _open_int8(path: Path, manifest: Manifest, options: OpenOptions) -> ApproximateIndex:
    n_rows, dim = manifest.count("rows"), manifest.count("dim")
    files, rows = CheckedFiles(path, manifest), options.rows or range(n_rows)
    scales = files[SCALES].array("float32", (dim,))[:].astype(np.float64)
    missing = missing_within(rows, read_missing(files, manifest))
    engine = CpuEngine(files[VECTORS].array("int8", (n_rows, dim)).row_range(rows), missing)

    def search(queries: Vectors, k: int, settings: Mapping[str, int], scope: Scope | None) -> tuple[Scores, Rows]:
        integers, steps = quantize_queries(queries * scales)
        words = NO_WORDS if scope is None else scope.words_within(rows)
        hits = engine.search(np.pad(integers, ((0, 0), (0, dim % 2))).view(np.int32), k, words)
        return (hits.scores * steps).astype(np.float32), np.where(hits.rows < 0, hits.rows, hits.rows + rows.start)

    return ApproximateIndex(manifest, np.empty(0, dtype=np.int64), len(rows) - len(missing), options, search, _PLACEMENT)


def quantize_queries(scaled: NDArray[np.float64]) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
    """Return queries that are multiplied by the scales, shape (Q, dim), as integers, and the step of each query, shape (Q, 1).

    The integers are as large as 16 bits and a sum of 32 bits over all components allow.
    """
    largest = min(_LARGEST_INT16, _LARGEST_SUM // (_LARGEST_CODE * scaled.shape[1]))
    steps = np.abs(scaled).max(axis=1, keepdims=True) / largest
    steps[steps == 0] = 1
    return np.rint(scaled / steps).astype(np.int16), steps


def _open_binary(path: Path, manifest: Manifest, options: OpenOptions) -> ApproximateIndex:
    files, dim, n_rows = CheckedFiles(path, manifest), manifest.count("dim"), manifest.count("rows")
    missing = read_missing(files, manifest)
    rows, n_bytes = options.rows or range(n_rows), -(-dim // 8)
    missing_here = missing_within(rows, missing)
    n_vectors, first_position = len(rows) - len(missing_here), rows.start - int(np.searchsorted(missing, rows.start))
    check_memory(path, n_vectors, n_bytes, "use a machine with more memory, or an index that stays on the disk, of kind ivf")
    codes = files[VECTORS].array("uint8", (n_rows, n_bytes))[rows.start : rows.stop]
    index = _fast_scan(np.delete(codes, missing_here, axis=0))

    def search(queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        scores, found = index.search(np.pad(queries, ((0, 0), (0, index.d - dim))), k)
        for line in np.flatnonzero((found < 0).any(axis=1)):  # FAISS leaves out vectors of the lowest score that there can be
            is_free = found[line] < 0
            found[line, is_free] = np.setdiff1d(np.arange(index.ntotal), found[line])[: np.count_nonzero(is_free)]
            scores[line, is_free] = -np.abs(queries[line]).sum()
        return scores, np.where(found < 0, found, found + first_position)

    return ApproximateIndex(manifest, missing, n_vectors, options, select(search, n_rows - len(missing), n_vectors), _PLACEMENT)


def _estimate(size: Size, *, bits: int) -> Estimate:
    """Return the estimate of a file with a code of some bits for each component."""
    return Estimate(size.n_rows * -(-size.dim * bits // 8), _MEMORY_BYTES)


def _fast_scan(codes: NDArray[np.uint8]) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return FAISS's index of packed signs, shape (n, bytes): a product quantizer whose centroids are all signs of four components."""
    faiss, dim = load_faiss(), 8 * codes.shape[1]
    signs = np.array([[1 if number >> i & 1 else -1 for i in range(_SIGNS)] for number in range(1 << _SIGNS)], dtype=np.float32)
    index = faiss.IndexPQ(dim, dim // _SIGNS, _SIGNS, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(np.tile(signs, (index.pq.M, 1)).ravel(), index.pq.centroids)
    index.is_trained = True
    index.add_sa_codes(codes)
    return faiss.IndexPQFastScan(index)


INT8 = IndexKind(
    name="int8",
    source="vectors",
    format_version=FORMAT_VERSION,
    parameters=lambda size: {"codec": "int8", "refine": _INT8_REFINE},
    write=_write_int8,
    open=_open_int8,
    estimate=partial(_estimate, bits=8),
)
BINARY = IndexKind(
    name="binary",
    source="vectors",
    format_version=FORMAT_VERSION,
    parameters=lambda size: {"codec": "sign", "refine": _BINARY_REFINE},
    write=_write_binary,
    open=_open_binary,
    estimate=partial(_estimate, bits=1),
)

"""FAISS's flat indexes, written as a stream: the file header, then the vectors' codes in order of the rows.

``flat`` stores float32, and ``flat-fp16`` float16. ``sq8`` stores a byte per component: the component's position between its minimum and
its maximum in the corpus. The files equal FAISS's own byte for byte; ``faiss.read_index`` opens them. A vector's number in a file is its
position among the rows with a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from wikidx.corpora.artifacts.manifest import Parameters
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.approximate import save_missing
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, IndexKind, Size
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_flat
from .gpu import open_flat_anywhere
from .library import INDEX_FILE, check_half, load_faiss, serialize

FORMAT_VERSION = 2

Codec = Literal["float32", "float16", "8 bit"]

_NO_CODES_BYTES = 8  # the file of an empty index ends with the number of codes, 0, in 8 bytes
_WRITTEN_PER_S = 150e6  # components encoded and written per second
_MEMORY_BYTES = 0.6e9
_SQ8_REFINE = 2  # candidates rescored for each result: a code is off by up to 1/510 of its component's range


def _empty_index(dim: int, codec: Codec) -> Any:  # noqa: ANN401 - FAISS has no types
    faiss = load_faiss()
    if codec == "float32":
        return faiss.IndexFlat(dim, faiss.METRIC_INNER_PRODUCT)
    codes = faiss.ScalarQuantizer.QT_fp16 if codec == "float16" else faiss.ScalarQuantizer.QT_8bit
    return faiss.IndexScalarQuantizer(dim, codes, faiss.METRIC_INNER_PRODUCT)


def _write(build: IndexBuild[CorpusVectors], *, codec: Codec) -> Mapping[str, int]:
    """Write the header, which an empty index provides, then the codes of all vectors."""
    index = _empty_index(build.source.dim, codec)
    if codec == "8 bit":
        index.train(_range(build.source))
    index.ntotal = len(build.source)
    counted_bytes = 4 if codec == "float32" else 1  # FAISS counts the codes of ``flat`` in floats, other codes in bytes
    with (build.staging / INDEX_FILE).open("wb") as file:
        file.write(serialize(index)[:-_NO_CODES_BYTES])
        file.write(np.uint64(index.ntotal * index.code_size // counted_bytes).tobytes())
        n_done = 0
        for rows, vectors in build.source.batches():
            codes = index.sa_encode(vectors)
            if codec == "float16":
                check_half(codes, rows)
            file.write(codes.data)
            n_done += len(rows)
            build.progress(n_done, index.ntotal)
    save_missing(build)
    return build.source.counts()


def _range(vectors: CorpusVectors) -> Vectors:
    """Return the minimum and the maximum of each component, shape (2, dim). FAISS clips no vector after training on these two."""
    limits = np.repeat(np.array([[np.inf], [-np.inf]], dtype=np.float32), vectors.dim, axis=1)
    for _, batch in vectors.batches():
        np.minimum(limits[0], batch.min(axis=0, initial=np.inf), out=limits[0])
        np.maximum(limits[1], batch.max(axis=0, initial=-np.inf), out=limits[1])
    return limits


def _parameters(size: Size, *, codec: Codec) -> Parameters:
    parameters: Parameters = {"codec": codec}
    return {**parameters, "trained_on": "the range of all vectors", "refine": _SQ8_REFINE} if codec == "8 bit" else parameters


def _estimate(size: Size, *, code_bytes: int, n_passes: int = 1) -> Estimate:
    n_components = size.n_rows * size.dim
    return Estimate(n_components * code_bytes, _MEMORY_BYTES, n_passes * n_components / _WRITTEN_PER_S)


FLAT = IndexKind(
    name="flat",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="float32"),
    write=partial(_write, codec="float32"),
    open=open_flat,
    estimate=partial(_estimate, code_bytes=4),
)
FLAT_FP16 = IndexKind(
    name="flat-fp16",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="float16"),
    write=partial(_write, codec="float16"),
    open=open_flat_anywhere,
    estimate=partial(_estimate, code_bytes=2),
)
SQ8 = IndexKind(
    name="sq8",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="8 bit"),
    write=partial(_write, codec="8 bit"),
    open=open_flat,
    estimate=partial(_estimate, code_bytes=1, n_passes=2),
)

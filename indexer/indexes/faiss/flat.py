"""FAISS's flat indexes, written as a stream: the header of the file, then the code of one vector after the other.

``flat`` stores float32, ``flat-fp16`` float16, ``sq8`` a byte per component: its position between the minimum and the maximum of the
corpus. The files equal those of FAISS byte for byte: ``faiss.read_index`` opens them anywhere. A vector's number in them is
its place among the rows that have a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from wikidx.corpora.artifacts.manifest import Parameters
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.kinds import Cost, IndexBuild, IndexKind, Size
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_flat, save_missing
from .gpu import open_flat_anywhere
from .library import INDEX_FILE, check_half, load_faiss, serialized

FORMAT_VERSION = 2

Codec = Literal["float32", "float16", "8 bit"]

_NO_CODES_BYTES = 8  # at the end of a file without vectors: the number of code bytes, 0
_WRITTEN_PER_S = 150e6  # components per second encoded and written
_MEMORY_BYTES = 0.6e9
_SQ8_REFINE = 2  # candidates rescored for each result: a component is off by up to 1/510 of its range


def _empty(dim: int, codec: Codec) -> Any:  # noqa: ANN401 - FAISS has no types
    faiss = load_faiss()
    if codec == "float32":
        return faiss.IndexFlat(dim, faiss.METRIC_INNER_PRODUCT)
    codes = faiss.ScalarQuantizer.QT_fp16 if codec == "float16" else faiss.ScalarQuantizer.QT_8bit
    return faiss.IndexScalarQuantizer(dim, codes, faiss.METRIC_INNER_PRODUCT)


def _write(plan: IndexBuild[CorpusVectors], *, codec: Codec) -> Mapping[str, int]:
    """Write the header for an index with all vectors, from an empty index, then their codes."""
    index = _empty(plan.source.dim, codec)
    if codec == "8 bit":
        index.train(_range(plan.source))
    index.ntotal = len(plan.source)
    counted_bytes = 4 if codec == "float32" else 1  # FAISS counts codes in these units
    with (plan.staging / INDEX_FILE).open("wb") as file:
        file.write(serialized(index)[:-_NO_CODES_BYTES])
        file.write(np.uint64(index.ntotal * index.code_size // counted_bytes).tobytes())
        n_done = 0
        for rows, vectors in plan.source.batches():
            codes = index.sa_encode(vectors)
            if codec == "float16":
                check_half(codes, rows)
            file.write(codes.data)
            n_done += len(rows)
            plan.progress(n_done, index.ntotal)
    save_missing(plan)
    return plan.source.counts()


def _range(vectors: CorpusVectors) -> Vectors:
    """Return the minimum and the maximum of each component, shape (2, dim): trained on these two, FAISS clips no vector."""
    found = np.repeat(np.array([[np.inf], [-np.inf]], dtype=np.float32), vectors.dim, axis=1)
    for _, batch in vectors.batches():
        np.minimum(found[0], batch.min(axis=0, initial=np.inf), out=found[0])
        np.maximum(found[1], batch.max(axis=0, initial=-np.inf), out=found[1])
    return found


def _parameters(size: Size, *, codec: Codec) -> Parameters:
    found: Parameters = {"codec": codec}
    return {**found, "trained_on": "the range of all vectors", "refine": _SQ8_REFINE} if codec == "8 bit" else found


def _cost(size: Size, *, code_bytes: int, n_passes: int = 1) -> Cost:
    n_components = size.n_rows * size.dim
    return Cost(n_components * code_bytes, _MEMORY_BYTES, n_passes * n_components / _WRITTEN_PER_S)


FLAT = IndexKind(
    name="flat",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="float32"),
    write=partial(_write, codec="float32"),
    open=open_flat,
    cost=partial(_cost, code_bytes=4),
)
FLAT_FP16 = IndexKind(
    name="flat-fp16",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="float16"),
    write=partial(_write, codec="float16"),
    open=open_flat_anywhere,
    cost=partial(_cost, code_bytes=2),
)
SQ8 = IndexKind(
    name="sq8",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="8 bit"),
    write=partial(_write, codec="8 bit"),
    open=open_flat,
    cost=partial(_cost, code_bytes=1, n_passes=2),
)

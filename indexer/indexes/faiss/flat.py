"""FAISS's flat index of float32 vectors, written as a stream: the file header, then the vectors in order of the rows.

It is for other programs, and finds what exact search finds without it. The file equals FAISS's own byte for byte, and ``faiss.read_index``
opens it. A vector's number in the file is its position among the rows with a vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from wikidx.indexer.indexes.approximate import save_missing
from wikidx.indexer.indexes.kinds import IndexBuild, IndexKind, estimate_codes
from wikidx.indexer.vectors.corpus_vectors import CorpusVectors

from .cpu import open_flat
from .library import INDEX_FILE, load_faiss, serialize

FORMAT_VERSION = 2

_NO_CODES_BYTES = 8  # the file of an empty index ends with the number of components, 0, in 8 bytes


def _write(build: IndexBuild[CorpusVectors]) -> Mapping[str, int]:
    """Write the header, which an empty index provides, then all vectors."""
    faiss, vectors = load_faiss(), build.source
    index = faiss.IndexFlatIP(vectors.dim)
    index.ntotal = len(vectors)
    with (build.staging / INDEX_FILE).open("wb") as file:
        file.write(serialize(index)[:-_NO_CODES_BYTES])
        file.write(np.uint64(len(vectors) * vectors.dim).tobytes())
        n_done = 0
        for rows, batch in vectors.batches():
            file.write(batch.data)
            n_done += len(rows)
            build.progress(n_done, len(vectors))
    save_missing(build)
    return vectors.counts()


FLAT = IndexKind(
    name="flat",
    format_version=FORMAT_VERSION,
    parameters=lambda size: {"codec": "float32"},
    write=_write,
    open=open_flat,
    estimate=partial(estimate_codes, bits=32),
)

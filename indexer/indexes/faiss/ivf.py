"""FAISS's inverted files: ``ivf`` stores float16 vectors, ``ivfpq`` product-quantised residuals of 4 bits for every 4 components.

A build writes pieces that survive an interruption: the quantisers, trained on a sample; for some batches of vectors at a time, list and
code of each vector; then these are merged into one file of lists. Memory holds the sample, or one piece: at most about 3 GB in total.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from wikidx.corpora.artifacts.building import PIECES
from wikidx.corpora.artifacts.manifest import Parameters
from wikidx.corpora.errors import InputError
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.kinds import Cost, IndexBuild, IndexKind, Size
from wikidx.indexer.machine.threads import n_threads
from wikidx.indexer.vectors.corpus_vectors import BATCH_ROWS, CorpusVectors

from .gpu import open_ivf_anywhere
from .inverted_lists import NO_LISTS_BYTES, Codes, Lists, Piece, write_lists
from .library import INDEX_FILE, check_half, deserialized, load_faiss, serialized, write_piece

FORMAT_VERSION = 2

Codec = Literal["float16", "pq"]

_TRAINED = "trained.faiss"
_SEED = 1234
_ITERATIONS = 10
_PER_LIST = 64  # sampled vectors per list; FAISS's k-means expects 39 to 256
_MIN_PER_LIST = 39
_SAMPLE_BYTES = 2 << 30
_PIECE_BATCHES, _PIECE_BYTES = 16, 256 << 20
_PQ_BITS, _PQ_COMPONENTS = 4, 4  # bits of a code, and components that it encodes, or up to ...
_MAX_PQ_COMPONENTS = 8  # ... this many if the dimension has no such divisor: beyond, 16 codes do not distinguish vectors
_PQ_REFINE = 4  # candidates rescored for each result
_NPROBE = 128
_PRODUCTS_PER_S = 15e9  # multiply-adds per second and core; also components encoded
_ENCODED_PER_S = 40e6


def n_lists(n: int) -> int:
    """Return the number of lists for n vectors: the largest power of two up to 4 * sqrt(n) that leaves 39 vectors for each."""
    return 1 << max(0, math.floor(math.log2(max(1.0, min(4 * math.sqrt(n), n / _MIN_PER_LIST)))))


def n_subquantizers(dim: int) -> int:
    """Return the number of subquantisers: of 4 components each, or of the next larger divisor of dim."""
    return dim // next(n for n in range(min(_PQ_COMPONENTS, dim), dim + 1) if dim % n == 0)


def _parameters(size: Size, *, codec: Codec) -> Parameters:
    n, dim, _ = size
    lists = n_lists(n)
    found = {"codec": codec, "lists": lists, "sample": _sample_rows(n, dim), "seed": _SEED, "iterations": _ITERATIONS}
    if codec == "pq":
        found |= {"subquantizers": n_subquantizers(dim), "bits": _PQ_BITS, "refine": _PQ_REFINE}
    return {**found, "nprobe": min(_NPROBE, lists)}


def _sample_rows(n: int, dim: int) -> int:
    return min(n, _PER_LIST * n_lists(n), _SAMPLE_BYTES // (4 * dim))


def _write(plan: IndexBuild[CorpusVectors], *, codec: Codec) -> Mapping[str, int]:
    if codec == "pq" and len(plan.source) < 1 << _PQ_BITS:
        raise InputError(
            f"ivfpq is trained on at least {1 << _PQ_BITS} vectors, here are {len(plan.source)}: so few are searched exactly at no cost"
        )
    if codec == "pq" and n_subquantizers(plan.source.dim) * _MAX_PQ_COMPONENTS < plan.source.dim:
        raise InputError(
            f"ivfpq codes {_PQ_COMPONENTS} to {_MAX_PQ_COMPONENTS} components at a time, and the dimension {plan.source.dim} cannot be "
            f"divided so: use ivf or sq8"
        )
    folder = plan.staging / PIECES
    folder.mkdir(exist_ok=True)
    trained = folder / _TRAINED
    if not trained.exists():
        write_piece(trained, _trained(plan.source, plan.parameters, codec))
    index = deserialized(trained)
    pieces = list(_write_pieces(plan, index, codec))
    index.ntotal = len(plan.source)
    with (plan.staging / INDEX_FILE).open("wb") as file:
        file.write(serialized(index)[:-NO_LISTS_BYTES])
        write_lists(file, pieces, plan.progress)
    return plan.source.counts()


def _trained(vectors: CorpusVectors, parameters: Parameters, codec: Codec) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an index without vectors, with the lists' centroids and the product quantiser trained on a sample."""
    faiss = load_faiss()
    lists, dim = int(parameters["lists"] or 0), vectors.dim
    sample = vectors.sample(int(parameters["sample"] or 0), _SEED)
    quantizer = _trained_lists(sample, lists)
    if codec == "pq":  # FAISS trains 16 centroids per subquantiser on 4,096 vectors of the sample
        index = faiss.IndexIVFPQ(quantizer, dim, lists, n_subquantizers(dim), _PQ_BITS, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.seed, index.pq.cp.min_points_per_centroid = _SEED, 1
    else:  # no residuals: a vector's code is its float16, and its score equals flat-fp16's
        index = faiss.IndexIVFScalarQuantizer(quantizer, dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False)
    index.train(sample)  # the lists' centroids are unchanged
    return index


def _trained_lists(sample: Vectors, n: int) -> Any:  # noqa: ANN401
    """Return a flat index of the centroids of n lists, by spherical k-means: a vector goes to the list of largest inner product.

    All centroids are scaled to one length, the mean inner product of a vector with its own. The nearest list stays the same; residuals
    become as short as possible. With FAISS's unit-length centroids they are as long as the vectors, and recall falls by several points.
    """
    faiss = load_faiss()
    dim = sample.shape[1]
    means = faiss.Kmeans(
        dim,
        n,
        niter=_ITERATIONS,
        seed=_SEED,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=len(sample),  # the sample already has the intended size
    )
    means.train(sample)
    unit = faiss.IndexFlat(dim, faiss.METRIC_INNER_PRODUCT)
    unit.add(means.centroids)
    length = float(unit.search(sample, 1)[0].mean())
    quantizer = faiss.IndexFlat(dim, faiss.METRIC_INNER_PRODUCT)
    quantizer.add(means.centroids * np.float32(length if length > 0 else 1))
    return quantizer


def _write_pieces(plan: IndexBuild[CorpusVectors], index: Any, codec: Codec) -> Iterator[Piece]:  # noqa: ANN401
    """Write the missing pieces; yield all."""
    piece_rows = BATCH_ROWS * max(1, min(_PIECE_BATCHES, _PIECE_BYTES // (BATCH_ROWS * index.code_size)))
    n_done = 0
    for first_row in range(0, plan.source.n_rows, piece_rows):
        piece = Piece(plan.staging / PIECES / f"piece-{first_row // piece_rows:05d}.bin", index.nlist, index.code_size)
        if not piece.path.exists():
            parts = []
            for rows, vectors in plan.source.batches(range(first_row, first_row + piece_rows)):
                lists, codes = _encoded(index, vectors)
                if codec == "float16":
                    check_half(codes, rows)
                parts.append((lists, rows, codes))
                plan.progress(n_done + sum(len(part[1]) for part in parts), len(plan.source))
            piece.write(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        n_done += int(piece.ends()[-1])
        plan.progress(n_done, len(plan.source))
        yield piece


def _encoded(index: Any, vectors: Vectors) -> tuple[Lists, Codes]:  # noqa: ANN401
    """Return the list, shape (n,), and the code, shape (n, code size), of each vector."""
    faiss = load_faiss()
    vectors = np.ascontiguousarray(vectors)
    lists = index.quantizer.search(vectors, 1)[1].ravel() if len(vectors) else np.empty(0, dtype=np.int64)
    codes = np.empty((len(vectors), index.code_size), dtype=np.uint8)
    index.encode_vectors(len(vectors), faiss.swig_ptr(vectors), faiss.swig_ptr(lists), faiss.swig_ptr(codes), False)
    return lists, codes


def _cost(size: Size, *, codec: Codec) -> Cost:
    """Return the estimate: pieces and lists are on the disk at the same time, and every vector is compared with every centroid."""
    n, dim, _ = size
    code_bytes = 2 * dim if codec == "float16" else math.ceil(n_subquantizers(dim) * _PQ_BITS / 8)
    sample = _sample_rows(n, dim)
    memory_bytes = 0.6e9 + max(4 * dim * sample, 3 * min(_PIECE_BYTES, n * code_bytes))
    n_products = (n + _ITERATIONS * sample) * n_lists(n) * dim
    return Cost(2 * n * (code_bytes + 8), memory_bytes, (n_products / _PRODUCTS_PER_S + n * dim / _ENCODED_PER_S) / n_threads())


IVF = IndexKind(
    name="ivf",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="float16"),
    write=partial(_write, codec="float16"),
    open=open_ivf_anywhere,
    cost=partial(_cost, codec="float16"),
)
IVFPQ = IndexKind(
    name="ivfpq",
    format_version=FORMAT_VERSION,
    parameters=partial(_parameters, codec="pq"),
    write=partial(_write, codec="pq"),
    open=open_ivf_anywhere,
    cost=partial(_cost, codec="pq"),
)

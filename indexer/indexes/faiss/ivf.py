"""FAISS's inverted files. ``ivf`` stores float16 vectors; ``ivfpq`` stores product-quantised residuals, 4 bits per 4 components.

A build trains quantisers on a sample, writes the list and the code of each vector to shards, and merges the shards into one file.
Quantisers and shards survive an interruption. Memory holds the sample or one shard, at most about 3 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.durable import atomic_write
from wikidx.base.artifacts.manifest import Parameters
from wikidx.base.errors import InputError
from wikidx.indexer.base import Vectors
from wikidx.indexer.indexes.approximate import ApproximateIndex
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, IndexKind, Size
from wikidx.indexer.vectors.corpus_vectors import BATCH_ROWS, CorpusVectors

from .gpu import open_ivf_anywhere
from .inverted_lists import NO_LISTS_BYTES, Codes, Lists, ListShard, write_lists
from .library import INDEX_FILE, check_half, faiss_errors, load_faiss, serialize

FORMAT_VERSION = 2

Codec = Literal["float16", "pq"]

_TRAINED = "trained.faiss"
_SEED = 1234
_ITERATIONS = 10
_PER_LIST = 64  # sampled vectors per list; FAISS's k-means expects 39 to 256 vectors
_MIN_PER_LIST = 39
_SAMPLE_BYTES = 2 << 30
_SHARD_BATCHES, _SHARD_BYTES = 16, 256 << 20
_PQ_BITS, _PQ_COMPONENTS = 4, 4  # bits of a code, and components per code
_MAX_PQ_COMPONENTS = 8  # limit if 4 does not divide the dimension: 16 codes are too few for more components
_PQ_REFINE = 4  # candidates rescored for each result
_NPROBE = 128


def n_lists(n: int) -> int:
    """Return the number of lists for n vectors: the largest power of two up to 4 * sqrt(n) and up to n / 39."""
    return 1 << max(0, math.floor(math.log2(max(1.0, min(4 * math.sqrt(n), n / _MIN_PER_LIST)))))


def n_subquantizers(dim: int) -> int:
    """Return the number of subquantisers. Each codes 4 components if 4 divides ``dim``, otherwise the next larger divisor of ``dim``."""
    return dim // next(n for n in range(min(_PQ_COMPONENTS, dim), dim + 1) if dim % n == 0)


def _parameters(size: Size, *, codec: Codec) -> Parameters:
    n, dim, _ = size
    lists = n_lists(n)
    parameters = {"codec": codec, "lists": lists, "sample": _sample_rows(n, dim), "seed": _SEED, "iterations": _ITERATIONS}
    if codec == "pq":
        parameters |= {"subquantizers": n_subquantizers(dim), "bits": _PQ_BITS, "refine": _PQ_REFINE}
    return {**parameters, "nprobe": min(_NPROBE, lists)}


def _sample_rows(n: int, dim: int) -> int:
    return min(n, _PER_LIST * n_lists(n), _SAMPLE_BYTES // (4 * dim))


def _write(build: IndexBuild[CorpusVectors], *, codec: Codec) -> Mapping[str, int]:
    if codec == "pq" and len(build.source) < 1 << _PQ_BITS:
        raise InputError(
            f"ivfpq is trained on at least {1 << _PQ_BITS} vectors, here are {len(build.source)}: so few are searched exactly at no cost"
        )
    if codec == "pq" and n_subquantizers(build.source.dim) * _MAX_PQ_COMPONENTS < build.source.dim:
        raise InputError(
            f"ivfpq codes {_PQ_COMPONENTS} to {_MAX_PQ_COMPONENTS} components at a time, and the dimension {build.source.dim} cannot be "
            f"divided so: use ivf or int8"
        )
    folder = build.staging / INTERMEDIATE
    folder.mkdir(exist_ok=True)
    trained = folder / _TRAINED
    if not trained.exists():
        with atomic_write(trained) as file:
            file.write(serialize(_train(build.source, build.parameters, codec)))
    with faiss_errors(trained, is_intermediate=True):
        index = load_faiss().deserialize_index(np.fromfile(trained, dtype=np.uint8))
    shards = list(_write_shards(build, index, codec))
    index.ntotal = len(build.source)
    with (build.staging / INDEX_FILE).open("wb") as file:
        file.write(serialize(index)[:-NO_LISTS_BYTES])
        write_lists(file, shards, build.progress)
    return build.source.counts()


def _train(vectors: CorpusVectors, parameters: Parameters, codec: Codec) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an empty index whose lists' centroids and product quantiser are trained on a sample."""
    faiss = load_faiss()
    lists, dim = int(parameters["lists"] or 0), vectors.dim
    sample = vectors.sample(int(parameters["sample"] or 0), _SEED)
    quantizer = _train_quantizer(sample, lists)
    if codec == "pq":  # FAISS trains 16 centroids per subquantiser on 4,096 vectors of the sample
        index = faiss.IndexIVFPQ(quantizer, dim, lists, n_subquantizers(dim), _PQ_BITS, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.seed, index.pq.cp.min_points_per_centroid = _SEED, 1
    else:  # no residuals: codes are float16 vectors, and scores equal those of exact search over float16
        index = faiss.IndexIVFScalarQuantizer(quantizer, dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False)
    index.train(sample)  # trains the product quantiser; the lists' centroids stay the same
    return index


def _train_quantizer(sample: Vectors, n: int) -> Any:  # noqa: ANN401
    """Return a flat index of the centroids of n lists. A vector belongs to the list whose centroid has the largest inner product.

    The centroids are computed by spherical k-means. All are then scaled to one length, the mean inner product of a vector with its
    unit-length centroid. This keeps each vector's list, and makes residuals as short as possible. With FAISS's unit-length centroids,
    residuals are as long as the vectors, and recall falls by several points.
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


def _write_shards(build: IndexBuild[CorpusVectors], index: Any, codec: Codec) -> Iterator[ListShard]:  # noqa: ANN401
    """Write the shards that do not exist yet, and yield all shards."""
    shard_rows = BATCH_ROWS * max(1, min(_SHARD_BATCHES, _SHARD_BYTES // (BATCH_ROWS * index.code_size)))
    n_done = 0
    for first_row in range(0, build.source.n_rows, shard_rows):
        shard = ListShard(build.staging / INTERMEDIATE / f"shard-{first_row // shard_rows:05d}.bin", index.nlist, index.code_size)
        if not shard.path.exists():
            batches = []
            for rows, vectors in build.source.batches(range(first_row, first_row + shard_rows)):
                lists, codes = _encode(index, vectors)
                if codec == "float16":
                    check_half(codes, rows)
                batches.append((lists, rows, codes))
                build.progress(n_done + sum(len(rows) for _, rows, _ in batches), len(build.source))
            shard.write(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))
        n_done += int(shard.ends()[-1])
        build.progress(n_done, len(build.source))
        yield shard


def _encode(index: Any, vectors: Vectors) -> tuple[Lists, Codes]:  # noqa: ANN401
    """Return the list, shape (n,), and the code, shape (n, code size), of each vector."""
    faiss = load_faiss()
    vectors = np.ascontiguousarray(vectors)
    lists = index.quantizer.search(vectors, 1)[1].ravel() if len(vectors) else np.empty(0, dtype=np.int64)
    codes = np.empty((len(vectors), index.code_size), dtype=np.uint8)
    index.encode_vectors(len(vectors), faiss.swig_ptr(vectors), faiss.swig_ptr(lists), faiss.swig_ptr(codes), False)
    return lists, codes


def _estimate(size: Size, *, codec: Codec) -> Estimate:
    """Return the estimate of a build. Shards and lists are on disk together."""
    n, dim, _ = size
    code_bytes = 2 * dim if codec == "float16" else math.ceil(n_subquantizers(dim) * _PQ_BITS / 8)
    sample = _sample_rows(n, dim)
    memory_bytes = 0.6e9 + max(4 * dim * sample, 3 * min(_SHARD_BYTES, n * code_bytes))
    return Estimate(2 * n * (code_bytes + 8), memory_bytes)


def _kind(name: str, codec: Codec) -> IndexKind[CorpusVectors, ApproximateIndex]:
    return IndexKind(
        name=name,
        source="vectors",
        format_version=FORMAT_VERSION,
        parameters=partial(_parameters, codec=codec),
        write=partial(_write, codec=codec),
        open=open_ivf_anywhere,
        estimate=partial(_estimate, codec=codec),
    )


IVF, IVFPQ = _kind("ivf", "float16"), _kind("ivfpq", "pq")

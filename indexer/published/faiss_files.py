"""FAISS indexes that hold their vectors: where these and their ids are in the file.

    IxFI, IxF2   flat, for inner products or Euclidean distances
    IxSQ         flat, in float16 or bfloat16 (SQfp16, SQbf16)
    IHNf, IHNs   a graph (HNSW), then one of these
    IwFl         inverted lists (IVF) of vectors, each list with its ids
    IxMp, IxM2   one of these, then its ids (IDMap)

Others hold codes that are not the vectors, and are refused. FAISS's own reader is not used: it holds an index in memory (1 GB of one of
1 GB, where reading by blocks takes 0.1), even with IO_FLAG_MMAP; with IO_FLAG_MMAP_IFC it maps the file, and ends the process when that
gets shorter; it reads neither parts nor tars, and trusts what a damaged file says.
(Source: facebookresearch/faiss, faiss/impl/index_write.cpp.)
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import replace
from typing import IO, Any

import numpy as np

from wikidx.base.errors import InputError

from .arrays import ADVICE, MAX_DIM, Arrays, FileArray

_FLAT, _GRAPHS, _ID_MAPS = (b"IxFI", b"IxF2", b"IxFl"), (b"IHNf", b"IHNs"), (b"IxMp", b"IxM2")  # the third compares by another metric
KINDS = (*_FLAT, *_GRAPHS, *_ID_MAPS, b"IxSQ", b"IwFl")
_SCALARS = {4: "<f2", 7: "<u2"}  # QT_fp16, QT_bf16
_GRAPH_ARRAYS = ("<f8", "<i4", "<i4", "<i8", "<i4")  # probabilities and neighbours of the levels, levels, offsets, neighbours
_HASH_TABLE = 2
_MAX_DEPTH = 4


def read_index(file: IO[bytes], name: str) -> list[Arrays]:
    """Return the arrays of an index in a seekable file: one, or one for each list that is not empty.

    Their ids know it if all are the numbers from 0, each once, so that they may be rows.

    Raises:
        InputError: the file is cut off or corrupt, does not hold its vectors, or compares them by another metric.
    """
    parts = _IndexFile(file, name).parts(_MAX_DEPTH)
    ids = [ids for ids, vectors in parts if ids is not None]
    numbers = np.sort(np.concatenate([part[0 : len(part)] for part in ids])) if ids else np.zeros(0)
    n_numbers = len(numbers) if np.array_equal(numbers, np.arange(len(numbers))) else 0
    return [(name, ids and replace(ids, n_numbers=n_numbers), vectors) for ids, vectors in parts]


def refuse_kind(name: object, kind: bytes) -> InputError:
    """Return (not raise) the error of an index that does not hold its vectors."""
    read = "read are flat ones, HNSW and IVF over flat ones, SQfp16, and IDMap before these"
    return InputError(
        f"{name} is a FAISS index of type '{kind.decode(errors='replace')}', which does not hold the vectors: {read}; {ADVICE}"
    )


_Part = tuple[FileArray | None, FileArray]


class _IndexFile:
    """An open file of an index, read from its start."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._end = file.seek(0, os.SEEK_END)
        file.seek(0)

    def parts(self, depth: int) -> list[_Part]:
        """Read the next index; return the ids and the vectors of its parts. The file is then behind it."""
        kind, dim, n, _, _, _, metric = self._numbers("4siqqq?i")
        if kind not in KINDS:
            raise refuse_kind(self._name, kind)
        if metric not in (0, 1):
            problem = f"compares by FAISS's metric {metric} (2 is L1, 3 Linf, 4 Lp)"
            raise InputError(f"{self._name} {problem}: an index for inner products is needed")
        if not 1 <= dim <= MAX_DIM or n < 0 or not depth:
            raise InputError(f"{self._name} is corrupt: it says {n:,} vectors of dimension {dim}")
        if kind in _FLAT:
            return [(None, self._vectors((n, dim), "<f4", 4, metric))]
        if kind == b"IxSQ":
            return [(None, self._vectors((n, dim), self._scalars(), 1, metric))]
        if kind == b"IwFl":
            return self._lists(n, dim, metric, depth)
        if kind in _GRAPHS:
            for dtype in _GRAPH_ARRAYS:
                self._array(dtype)
            self._numbers("5i")
            return self.parts(depth - 1)
        parts, ids = self.parts(depth - 1), self._array("<i8")
        if len(ids) != n or len(parts) != 1 or parts[0][0] is not None:
            raise InputError(f"{self._name} has {len(ids):,} ids for {n:,} vectors, or ids of ids: ids of each vector are needed")
        return [(ids, parts[0][1])]

    def _numbers(self, fields: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        content = self._file.read(struct.calcsize(f"<{fields}"))
        if len(content) < struct.calcsize(f"<{fields}"):
            raise InputError(f"{self._name} is cut off at its byte {self._end:,}")
        return struct.unpack(f"<{fields}", content)

    def _array(self, dtype: str, shape: tuple[int, ...] = ()) -> FileArray:
        """Return the next array, and go behind it. Without a shape, its length stands before it."""
        shape = shape or self._numbers("q")
        start, n_bytes = self._file.tell(), math.prod(shape) * np.dtype(dtype).itemsize
        if not 0 <= n_bytes <= self._end - start:
            raise InputError(
                f"{self._name} is cut off or corrupt: an array of {shape} follows its byte {start:,}, it ends at {self._end:,}"
            )
        self._file.seek(start + n_bytes)
        return FileArray(self._file, self._name, shape, np.dtype(dtype), start)

    def _vectors(self, shape: tuple[int, int], dtype: str, unit: int, metric: int) -> FileArray:
        """Return the next vectors, before which their size stands in units of some bytes."""
        (size,) = self._numbers("q")
        if size * unit != math.prod(shape) * np.dtype(dtype).itemsize:
            raise InputError(f"{self._name} is corrupt: it says {shape[0]:,} vectors of dimension {shape[1]} and {size:,} numbers")
        return replace(self._array(dtype, shape), is_euclidean=metric == 1)

    def _scalars(self) -> str:
        """Read what precedes the codes of scalars; return their type."""
        quantizer, *_ = self._numbers("iifqq")
        if quantizer not in _SCALARS:
            raise refuse_kind(self._name, b"IxSQ")
        self._array("<f4")
        return _SCALARS[quantizer]

    def _lists(self, n: int, dim: int, metric: int, depth: int) -> list[_Part]:
        """Read inverted lists: centroids, a map of ids to places, sizes, and the vectors and ids of each list."""
        self._numbers("qq")
        self.parts(depth - 1)
        for dtype in ("<i8", "V16") if self._numbers("b") == (_HASH_TABLE,) else ("<i8",):
            self._array(dtype)
        kind, _, code_bytes, form = self._numbers("4sqq4s")
        sizes = self._array("<i8")
        counts = sizes[0 : len(sizes)].tolist()
        counts = counts[1::2] if form == b"sprs" else counts  # each behind the number of its list
        if (kind, code_bytes, sum(counts)) != (b"ilar", 4 * dim, n) or min(counts, default=0) < 0:
            raise InputError(f"{self._name} is corrupt, or keeps its lists elsewhere: save it with lists of its own (ArrayInvertedLists)")
        found = ((self._array("<f4", (count, dim)), self._array("<i8", (count,))) for count in counts if count)
        return [(ids, replace(vectors, is_euclidean=metric == 1)) for vectors, ids in found]

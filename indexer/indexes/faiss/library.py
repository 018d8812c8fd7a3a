"""FAISS as a library: its only import and its configuration, reading and writing of its files, and translation of its errors."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import sync
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import ArtifactCorrupt, InputError, MissingExtraError, StagingCorrupt, find_write_error
from wikidx.base.machine.threads import limit_threads_after_fork
from wikidx.corpora.passage import Rows

# Below this many queries FAISS computes scores query by query, without a matrix product. FAISS's default is 128,000.
_MIN_BLAS_QUERIES = 2

INDEX_FILE = "index.faiss"


@functools.cache
def load_faiss() -> ModuleType:
    """Import and return FAISS.

    Raises:
        MissingExtraError: FAISS is not installed.
        InputError: FAISS is installed in part only.
    """
    try:
        import faiss
    except RuntimeError as error:  # faiss-gpu without a library of CUDA
        raise InputError(f"FAISS is installed, but cannot be loaded: {reason(error)}") from error
    except ImportError as error:
        raise MissingExtraError("a FAISS index", "dense") from error
    faiss.cvar.distance_compute_blas_threshold = _MIN_BLAS_QUERIES
    limit_threads_after_fork(faiss.omp_set_num_threads)
    library: ModuleType = faiss
    return library


def serialize(index: Any) -> bytes:  # noqa: ANN401 - FAISS has no types
    """Return the content of FAISS's file for an index."""
    content: NDArray[np.uint8] = load_faiss().serialize_index(index)
    return content.tobytes()


def write_index(path: Path, index: Any) -> None:  # noqa: ANN401
    """Write an index to a file without a second copy in memory, and flush the file to disk.

    Raises:
        OSError: a disk error.
    """
    faiss = load_faiss()
    try:
        faiss.write_index(index, utf8_path(path))
        faiss.read_index(utf8_path(path), faiss.IO_FLAG_MMAP_IFC)  # read again, because FAISS misses an error of its last flush
    except RuntimeError as error:
        raise find_write_error(path, RuntimeError(f"FAISS wrote but in part ({reason(error)})")) from error
    sync(path)


@contextlib.contextmanager
def faiss_errors(path: Path, *, is_intermediate: bool = False) -> Iterator[None]:
    """Translate FAISS's exceptions for a file into ``ArtifactCorrupt``, or ``StagingCorrupt`` for a file of an interrupted build."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # MemoryError: a corrupt length
        told = RuntimeError(reason(error))
        if is_intermediate:
            raise StagingCorrupt.of(told, path, f"{path} is no index that FAISS can go on from ({told})") from error
        raise ArtifactCorrupt.of(told, path, f"{path} is no index that FAISS can read ({told}): build it again with --force") from error


def check_half(codes: NDArray[np.uint8], rows: Rows) -> None:
    """Raise ``InputError`` if a component of a vector was too large for its float16 code.

    Args:
        codes: codes of n vectors, shape (n, 2 * dim).
        rows: rows of these vectors, for the message.
    """
    too_large = np.isinf(codes.view(np.float16)).any(axis=1)
    if too_large.any():
        row = rows[int(np.argmax(too_large))]
        raise InputError(f"the vector of row {row} has a component too large for float16: only --index int8, binary and ivfpq can hold it")


def reason(error: RuntimeError | MemoryError) -> str:
    """Return FAISS's error message without its source location."""
    return re.sub(r"^.*? at \S+:\d+: (Error: '.*?' failed: )?", "", " ".join(str(error).split()))

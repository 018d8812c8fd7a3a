"""Arrays in files: written, and mapped into memory without an open file each.

A mapping of ``numpy`` or ``mmap`` keeps its file open: the 1,283 shards of wiki2018 would be more than the 1,024 files that a process is
usually allowed. A mapping itself needs no open file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tokenize
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from corpora.errors import ArtifactDamaged

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def map_checked(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return the array in a ``.npy`` file of an artifact, mapped read-only.

    Raises:
        ArtifactDamaged: it cannot be read, or is not of this shape and type.
    """
    try:
        found = map_array(path)
    except (OSError, ValueError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({error}): build it again with --force") from error
    if found.shape != shape or found.dtype != dtype:
        raise ArtifactDamaged(f"{path} holds {found.dtype} {found.shape} instead of {dtype} {shape}: build it again with --force")
    return found


def write_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write a ``.npy`` file that ``map_array`` reads; not by ``np.save`` or ``tofile``, whose error on a full disk gives no reason.

    Raises:
        OSError: the disk refuses.
    """
    array = np.ascontiguousarray(array)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(array.data)


def map_array(path: Path) -> NDArray[Any]:
    """Return the array in a ``.npy`` file, mapped read-only; it is unmapped when nothing refers to it any more.

    Raises:
        OSError: the file cannot be read or mapped.
        ValueError: it is no array of numbers, one in Fortran's order, or cut off.
    """
    with path.open("rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("it is not written as arrays are here")
        shape, is_fortran, dtype = _head(file)
        first, n_bytes = file.tell(), int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        n_there = os.fstat(file.fileno()).st_size - first
        if is_fortran or n_bytes > n_there:
            raise ValueError(f"{n_there:,} bytes follow its head, not the {n_bytes:,} of {dtype} {shape}")
        if not n_bytes:
            return np.empty(shape, dtype=dtype)
        return _mapped(file, first + n_bytes)[first:].view(dtype).reshape(shape)


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped as ``map_array`` maps; raises ``OSError`` if it cannot be."""
    n_bytes = path.stat().st_size
    if not n_bytes:
        return np.empty(0, dtype=np.uint8)
    with path.open("rb") as file:
        return _mapped(file, n_bytes)


def _head(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type of the array behind a head, which is an expression of Python that may be damaged anyhow."""
    try:
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    except (SyntaxError, tokenize.TokenError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"its head is damaged: {error}") from error
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f"its head is damaged: {dtype} {shape}")
    return shape, is_fortran, dtype


def _mapped(file: IO[bytes], n_bytes: int) -> NDArray[np.uint8]:
    """Map the first bytes of a file."""
    address = _libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), file.name)
    buffer = (ctypes.c_uint8 * n_bytes).from_address(address)
    unmapping = weakref.finalize(buffer, _libc.munmap, address, n_bytes)
    unmapping.atexit = False  # threads that outlive the interpreter's exit may still read
    found: NDArray[np.uint8] = np.frombuffer(memoryview(buffer), dtype=np.uint8)
    found.flags.writeable = False
    return found

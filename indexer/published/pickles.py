"""Safe reader for pickles of embeddings: lists, tuples, strings, integers and numpy's float arrays.

The reader is Python's own unpickler, restricted to the instructions that such pickles need. It accepts only the six names that numpy's
arrays use, and replaces them by objects of this module: a pickle can call nothing else. The bytes of a large array stay in the file.

The reader uses the unpickler written in Python. The unpickler in C allocates any size that a pickle announces, and would read an array of
32 GB whole.
"""

from __future__ import annotations

import math
import pickle
import pickletools
from dataclasses import replace
from typing import IO, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import InputError

from .arrays import ADVICE, CORRUPT, FileArray

_IN_FILE_BYTES = 1 << 20  # arrays from this size on stay in the file
_LINE_BYTES = 256
_MAX_ROWS = 1 << 48  # limit on rows and on columns
_NAMES = {ord(code.code): code.name for code in pickletools.opcodes}
_INSTRUCTIONS = """
    PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1
    SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8
    EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE
    BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
""".split()


class UnsafePickle(InputError):
    """Error: a pickle contains something that embeddings do not need."""


class _Dtype:
    """A numeric type, as described by numpy's ``__reduce__``."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code
        self.order: object = "<"

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever the pickle says
        self.order = state[1]


class Array:
    """A float array in a pickle, in row-major order: numpy's own, or one that stays in the file."""

    __slots__ = ("rows",)
    rows: NDArray[np.floating[Any]] | FileArray

    def __init__(self, *_: object) -> None:
        """Create an array without rows, as numpy's ``_reconstruct`` does."""

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever the pickle says
        """Set the rows. The pickle's values are untrusted: they are validated before they are hashed, multiplied or shown."""
        _, shape, dtype, is_by_columns, data = state
        if not (isinstance(dtype, _Dtype) and isinstance(dtype.order, str) and isinstance(dtype.code, str)):
            raise TypeError("this is no type of numbers")
        if dtype.order not in ("<", ">", "=") or dtype.code not in ("f2", "f4"):
            raise UnsafePickle(f"an array of '{dtype.order}{dtype.code}'"[:200] + " (float16 and float32 are read)")
        if not isinstance(shape, tuple) or len(shape) > 2 or any(type(n) is not int or not 0 <= n < _MAX_ROWS for n in shape):
            raise UnsafePickle("an array of a shape that no vectors have")
        if is_by_columns and len(shape) > 1:
            raise UnsafePickle("an array stored column by column")
        if not isinstance(data, bytes | FileArray):
            raise UnsafePickle("an array of something other than bytes")
        numbers = np.dtype(dtype.order + dtype.code)
        n_bytes = len(data) if isinstance(data, bytes) else data.shape[0]
        if n_bytes != math.prod(shape) * numbers.itemsize:
            raise ValueError(f"it has {n_bytes:,} bytes for an array of shape {shape} and type {numbers}")
        self.rows = np.ndarray(shape, numbers, data) if isinstance(data, bytes) else replace(data, shape=shape, dtype=numbers)


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> Array:
    """Return an array in a pickle of protocol 5."""
    array = Array()
    array.__setstate__((1, shape, dtype, order != "C", data))
    return array


_ALLOWED = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class _File:
    """A pickle's file. A small read returns bytes; a large read returns an array that stays in the file."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._end = file.seek(0, 2)
        file.seek(0)

    def read(self, n_bytes: int) -> bytes | FileArray:
        """Return the next bytes, or an array of them if they are many."""
        if n_bytes < _IN_FILE_BYTES:
            content = self._file.read(n_bytes)
            if len(content) == n_bytes:
                return content
        else:
            start = self._file.tell()
            if start + n_bytes <= self._end:
                self._file.seek(n_bytes, 1)
                return FileArray(self._file, self._name, (n_bytes,), np.dtype("u1"), start)
        raise InputError(f"{self._name} is cut off: {n_bytes:,} bytes should follow, it ends at {self._end:,}")

    def readline(self) -> bytes:
        """Return the next line, which is a name in the pickle, or the beginning of a longer one, which is not allowed."""
        return self._file.readline(_LINE_BYTES)


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {
        **{code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _INSTRUCTIONS)},
        pickle.BYTEARRAY8[0]: pickle._Unpickler.dispatch[pickle.BINBYTES8[0]],  # an array in protocol 5, which may stay in the file
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - what numpy's arrays are made of
        """Return the class that replaces a name of numpy."""
        if (module, name) not in _ALLOWED:
            raise UnsafePickle(f"'{module}.{name}'"[:200])
        return _ALLOWED[module, name]


def read_pickle(file: IO[bytes], name: str) -> Any:  # noqa: ANN401 - whatever the pickle holds of these
    """Return the content of a pickle: a string, an integer, an ``Array``, or a list or tuple of these.

    Args:
        file: seekable file, read from its start.
        name: name of the file, for messages.

    Raises:
        InputError: the pickle is cut off, or contains something that embeddings do not need.
    """
    try:
        return _Unpickler(cast(IO[bytes], _File(file, name))).load()
    except (UnsafePickle, KeyError) as error:
        what = f"the instruction {_NAMES.get(error.args[0], error.args[0])}" if isinstance(error, KeyError) else error
        reason = f"{name} holds {what}, which embeddings do not need: it is refused, nothing of it was run"
        raise InputError(f"{reason}; {ADVICE}") from error
    except InputError:
        raise
    except (pickle.UnpicklingError, *CORRUPT) as error:
        raise InputError(f"{name} is no pickle of embeddings, or corrupt: {type(error).__name__} {error!s:.100}") from error

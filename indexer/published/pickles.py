"""Safe reader for pickles of embeddings: lists, tuples, strings, integers and numpy's float arrays.

The reader is Python's own unpickler, restricted to the instructions that such pickles need. It accepts only the six names that numpy's
arrays use, and replaces them by objects of this module: a pickle can call nothing else. The bytes of a large array stay in the file.

The reader uses the unpickler written in Python. The unpickler in C allocates any size that a pickle announces, and would read an array of
32 GB whole.
"""

from __future__ import annotations

import math
import pickle
from typing import IO, Any, ClassVar, NamedTuple, cast

import numpy as np

from wikidx.corpora.errors import InputError

_IN_FILE_BYTES = 1 << 20  # arrays from this size on stay in the file
_LINE_BYTES = 256
_MAX_ROWS = 1 << 48  # limit on rows and on columns
_NDARRAY = "ndarray"
_CORRUPT_ERRORS = (pickle.UnpicklingError, ArithmeticError, AttributeError, IndexError, MemoryError, RecursionError, TypeError, ValueError)
_NUMBERS: dict[tuple[object, object], np.dtype[np.floating[Any]]] = {
    (order, code): np.dtype(f"{order}{code}") for order in "<>=" for code in ("f2", "f4")
}
_INSTRUCTIONS = frozenset(
    b"".join(
        (
            *(pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
            *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
            *(pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8),
            *(pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.BINBYTES8),
            *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
            *(pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.TUPLE),
            *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET),
            *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BUILD),
        )
    )
)


class Extent(NamedTuple):
    """Position of a byte range in a file."""

    start: int
    n_bytes: int


class UnsafePickle(InputError):
    """Error: a pickle contains something that embeddings do not need."""


class _Dtype:
    """A numeric type, as described by numpy's ``__reduce__``."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = code
        self.order: object = "<"

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever the pickle says
        self.order = state[1]

    def numbers(self) -> np.dtype[np.floating[Any]]:
        """Return numpy's dtype. The pickle's values are untrusted: they are validated before they are hashed or shown."""
        if not isinstance(self.order, str) or not isinstance(self.code, str):
            raise TypeError("this is no type of numbers")
        if (self.order, self.code) not in _NUMBERS:
            raise UnsafePickle(f"an array of '{self.order}{self.code}'"[:200] + " (float16 and float32 are read)")
        return _NUMBERS[self.order, self.code]


class Array:
    """A float array in a pickle, in row-major order: dtype, shape, and the bytes or their position in the file."""

    __slots__ = ("data", "dtype", "shape")
    dtype: np.dtype[np.floating[Any]]
    shape: tuple[int, ...]
    data: bytes | Extent

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _NDARRAY:
            raise UnsafePickle("a call of something other than numpy's arrays")

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever the pickle says
        _, shape, dtype, is_by_columns, data = state
        self._fill(shape, dtype, data, is_by_columns=is_by_columns)

    def _fill(self, shape: object, dtype: object, data: object, *, is_by_columns: bool) -> None:
        """Set the attributes. The pickle's values are untrusted: they are validated before they are multiplied or shown."""
        if not isinstance(dtype, _Dtype):
            raise TypeError("this is no type of numbers")
        numbers = dtype.numbers()
        if not isinstance(shape, tuple) or len(shape) > 2 or any(type(n) is not int or not 0 <= n < _MAX_ROWS for n in shape):
            raise UnsafePickle("an array of a shape that no vectors have")
        if is_by_columns and len(shape) > 1:
            raise UnsafePickle("an array stored column by column")
        if not isinstance(data, bytes | Extent):
            raise UnsafePickle("an array of something other than bytes")
        n_bytes = data.n_bytes if isinstance(data, Extent) else len(data)
        if n_bytes != math.prod(shape) * numbers.itemsize:
            raise ValueError(f"it has {n_bytes:,} bytes for an array of shape {shape} and type {numbers}")
        self.dtype, self.shape, self.data = numbers, shape, data


class _FromBuffer(Array):
    """An array in a pickle of protocol 5."""

    __slots__ = ()

    def __init__(self, data: object, dtype: object, shape: object, order: object) -> None:
        self._fill(shape, dtype, data, is_by_columns=order != "C")


_ALLOWED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FromBuffer for core in ("core", "_core")},
}


class _File:
    """A pickle's file. A small read returns bytes; a large read returns the position of the bytes."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        start = file.tell()
        self._end = file.seek(0, 2)
        file.seek(start)

    def read(self, n_bytes: int) -> bytes | Extent:
        """Return the next bytes, or their position if they are many."""
        if n_bytes < _IN_FILE_BYTES:
            content = self._file.read(n_bytes)
            if len(content) == n_bytes:
                return content
        else:
            start = self._file.tell()
            if start + n_bytes <= self._end:
                self._file.seek(n_bytes, 1)
                return Extent(start, n_bytes)
        raise InputError(f"{self._name} is cut off: {n_bytes:,} bytes should follow, it ends at {self._end:,}")

    def readline(self) -> bytes:
        """Return the next line, which is a name in the pickle."""
        line = self._file.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise UnsafePickle("a name without end")
        return line


def _load_bytearray(unpickler: Any) -> None:  # noqa: ANN401 - its methods are not public
    """Read the bytes of an array in protocol 5. A large array stays in the file, as in the other protocols."""
    unpickler.append(unpickler.read(int.from_bytes(unpickler.read(8), "little")))


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if code in _INSTRUCTIONS},
        pickle.BYTEARRAY8[0]: _load_bytearray,
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - what numpy's arrays are made of
        """Return the class that replaces a name of numpy."""
        if (module, name) not in _ALLOWED:
            raise UnsafePickle(f"'{module}.{name}'"[:200])
        return _ALLOWED[module, name]


def read_pickle(file: IO[bytes], name: str) -> Any:  # noqa: ANN401 - whatever the pickle holds of these
    """Return the content of a pickle: a string, an integer, an ``Array``, or a list or tuple of these.

    Args:
        file: seekable file.
        name: name of the file, for messages.

    Raises:
        InputError: the pickle is cut off, or contains something that embeddings do not need.
    """
    try:
        return _Unpickler(cast(IO[bytes], _File(file, name))).load()
    except UnsafePickle as error:
        raise InputError(f"{name} holds {error}, which embeddings do not need: it is refused, nothing of it was run") from error
    except InputError:
        raise
    except KeyError as error:
        raise InputError(
            f"{name} holds an instruction, {error}, which embeddings do not need: it is refused, nothing of it was run"
        ) from error
    except _CORRUPT_ERRORS as error:
        raise InputError(f"{name} is no pickle of embeddings, or corrupt: {type(error).__name__} {error!s:.100}") from error

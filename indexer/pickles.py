"""Reads pickles of embeddings, and of nothing else: lists, tuples, strings, numbers and numpy's float arrays.

A pickle is a program for a small stack machine. This is such a machine without the instructions that call or import anything: of names it
admits the few that numpy's arrays are made of, and these stand for themselves. What else a pickle asks for is refused, never run.
(Format: CPython, Lib/pickletools.py.)

Nothing is held that need not be. The items of the outermost list are handed out as they come; the bytes of a large array stay in the file.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np

from corpora.errors import InputError

_IN_FILE_BYTES = 1 << 20  # arrays of this size stay in the file
_REMEMBERED_BYTES = 64  # longer bytes are an array's, to which nothing refers again
_MAX_PROTOCOL = 5
_MAX_ROWS = 1 << 48  # and columns: the product of two is computed at once
_NAMES = {opcode.code.encode("latin-1"): opcode.name for opcode in pickletools.opcodes}


class Extent(NamedTuple):
    """Where in a file some bytes are."""

    start: int
    n_bytes: int


class Array:
    """A numpy array of floats that a pickle holds, row by row: its type, its shape, and its bytes or where they are."""

    __slots__ = ("data", "dtype", "shape")

    def __init__(self) -> None:
        self.dtype = _NUMBERS["<", "f4"]
        self.shape: tuple[int, ...] = ()
        self.data: bytes | Extent = b""


class _Name(NamedTuple):
    """A name that is admitted; it is nothing but this."""

    name: str


class _Dtype:
    """A float type under construction."""

    def __init__(self, code: object) -> None:
        self.code = code
        self.order: object = "<"


_RECONSTRUCT, _FROM_BUFFER, _NDARRAY, _DTYPE = map(_Name, ("_reconstruct", "_frombuffer", "ndarray", "dtype"))
_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _DTYPE,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _FROM_BUFFER for core in ("core", "_core")},
}
_NUMBERS: dict[tuple[object, object], np.dtype[np.floating[Any]]] = {
    (order, code): np.dtype(f"{order}{code}") for order in "<>=" for code in ("f2", "f4")
}
_FORGOTTEN = object()


class PickleReader:
    """Reads one pickle from a file that can be sought in.

    Attributes:
        value: what it holds, when all ``items`` have been taken: strings, integers, ``Array``, lists and tuples of them; the outermost
            list is empty, its items have been handed out.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        start = file.tell()
        self._end = file.seek(0, 2)
        file.seek(start)
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}
        self.value: Any = None

    def items(self) -> Iterator[list[Any]]:
        """Yield the items of the outermost list, if there is one, some at a time.

        Raises:
            InputError: the pickle is cut off, or holds what embeddings do not need.
        """
        while (code := self._read(1)) != b".":
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise self._refused(f"the instruction {_NAMES.get(code, code.hex())}")
            try:
                items = instruction(self)
            except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise InputError(f"{self._name} is no pickle of embeddings, or damaged, at byte {self._file.tell():,}") from error
            if items:
                yield items
        if self._outer or len(self._stack) != 1:
            raise InputError(f"{self._name} is no pickle of embeddings, or damaged, at byte {self._file.tell():,}")
        self.value = self._stack.pop()

    def _refused(self, what: str) -> InputError:
        return InputError(f"{self._name} holds {what}, which embeddings do not need: it is refused, nothing of it was run")

    def _read(self, n_bytes: int) -> bytes:
        found = self._file.read(n_bytes) if n_bytes <= self._end else b""
        if len(found) != n_bytes:
            raise InputError(f"{self._name} is cut off: it ends within {n_bytes:,} bytes that should follow")
        return found

    def _integer(self, n_bytes: int) -> int:
        return int.from_bytes(self._read(n_bytes), "little")

    def _string(self, n_bytes: int) -> None:
        self._stack.append(self._read(self._integer(n_bytes)).decode("utf-8", "surrogatepass"))

    def _bytes(self, n_bytes: int) -> None:
        n_data = self._integer(n_bytes)
        if n_data < _IN_FILE_BYTES:
            self._stack.append(self._read(n_data))
            return
        start = self._file.tell()
        if start + n_data > self._end:
            raise InputError(f"{self._name} is cut off: {n_data:,} bytes should follow byte {start:,}, it ends at {self._end:,}")
        self._file.seek(n_data, 1)
        self._stack.append(Extent(start, n_data))

    def _protocol(self) -> None:
        protocol = self._integer(1)
        if protocol > _MAX_PROTOCOL:
            raise self._refused(f"protocol {protocol}")

    def _frame(self) -> None:
        self._read(8)  # how much may be read at once

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _empty_list(self) -> None:
        self._stack.append([])

    def _number(self, n_bytes: int, *, signed: bool = False) -> None:
        self._stack.append(int.from_bytes(self._read(n_bytes), "little", signed=signed))

    def _long(self) -> None:
        self._number(self._integer(1), signed=True)

    def _mark(self) -> None:
        self._outer.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        found = self._stack
        self._stack = self._outer.pop()
        return found

    def _tuple(self, n: int) -> None:
        found = tuple(self._stack[-n:])
        if len(found) != n:
            raise IndexError(n)
        self._stack[-n:] = [found]

    def _tuple_since_mark(self) -> None:
        found = self._since_mark()
        self._stack.append(tuple(found))

    def _append(self, items: list[Any]) -> list[Any] | None:
        """Add items to the list on the stack, or hand them out if that is the outermost one."""
        target = self._stack[-1]
        if not isinstance(target, list):
            raise TypeError("nothing can be appended to this")
        if len(self._stack) == 1 and not self._outer:
            return items
        target.extend(items)
        return None

    def _put(self, place: int) -> None:
        value = self._stack[-1]
        self._memo[place] = value if _may_be_used_again(value) else _FORGOTTEN

    def _get(self, place: int) -> None:
        value = self._memo[place]
        if value is _FORGOTTEN:
            raise self._refused("one array twice")
        self._stack.append(value)

    def _name_admitted(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name is text")  # and is not hashed or shown otherwise: it may be nested too deeply for that
        if (module, name) not in _ADMITTED:
            raise self._refused(f"'{module}.{name}'"[:200])
        self._stack.append(_ADMITTED[module, name])

    def _global(self) -> None:
        module, name = (self._line() for _ in range(2))
        self._name_admitted(module, name)

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name_admitted(module, name)

    def _line(self) -> str:
        line = self._file.readline(256)
        if not line.endswith(b"\n"):
            raise self._refused("a name without end")
        return line[:-1].decode()

    def _reduce(self) -> None:
        """Call, as a pickle says; of the names admitted three can be called."""
        arguments, called = self._stack.pop(), self._stack.pop()
        made: Array | _Dtype
        if called is _DTYPE:
            made = _Dtype(arguments[0])
        elif called is _RECONSTRUCT and arguments[0] is _NDARRAY:
            made = Array()
        elif called is _FROM_BUFFER:
            made = Array()
            data, dtype, shape, order = arguments
            self._fill(made, shape, dtype, is_by_columns=order != "C", data=data)
        else:
            raise self._refused("a call of something other than numpy's arrays")
        self._stack.append(made)

    def _build(self) -> None:
        """Give an array or a type its state, as numpy's ``__reduce__`` wrote it."""
        state, made = self._stack.pop(), self._stack[-1]
        if isinstance(made, _Dtype):
            made.order = state[1]
        elif isinstance(made, Array):
            _, shape, dtype, is_by_columns, data = state
            self._fill(made, shape, dtype, is_by_columns=is_by_columns, data=data)
        else:
            raise self._refused("the state of something other than numpy's arrays")

    def _fill(self, array: Array, shape: object, dtype: object, *, is_by_columns: bool, data: object) -> None:
        """Give an array what a pickle says of it. What that is may be anything: it is checked before it is hashed, shown or multiplied."""
        if not isinstance(dtype, _Dtype) or not isinstance(dtype.order, str) or not isinstance(dtype.code, str):
            raise TypeError("this is no type of numbers")
        numbers = _NUMBERS.get((dtype.order, dtype.code))
        if numbers is None:
            raise self._refused(f"an array of '{dtype.order}{dtype.code}'"[:200] + " (float16 and float32 are read)")
        array.dtype, array.shape = numbers, self._shape(shape)
        if is_by_columns and len(array.shape) > 1:
            raise self._refused("an array stored column by column")
        if not isinstance(data, bytes | Extent):
            raise self._refused("an array of something other than bytes")
        array.data = data
        n_bytes = data.n_bytes if isinstance(data, Extent) else len(data)
        if n_bytes != math.prod(array.shape) * numbers.itemsize:
            raise InputError(
                f"{self._name} has {n_bytes:,} bytes for an array of shape {array.shape} and type {array.dtype}: it is damaged"
            )

    def _shape(self, found: object) -> tuple[int, ...]:
        if not isinstance(found, tuple) or len(found) > 2 or any(type(n) is not int or not 0 <= n < _MAX_ROWS for n in found):
            raise self._refused("an array of a shape that no vectors have")
        return found


def _may_be_used_again(value: object) -> bool:
    """Return whether a value must be remembered: arrays, their bytes and their states never come twice, and would fill the memory."""
    if isinstance(value, tuple) and not isinstance(value, _Name):
        return all(isinstance(part, int) for part in value) and not isinstance(value, Extent)
    return len(value) <= _REMEMBERED_BYTES if isinstance(value, bytes) else not isinstance(value, Array)


_Instruction = Callable[[PickleReader], "list[Any] | None"]
_INSTRUCTIONS: dict[bytes, _Instruction] = {
    b"\x80": PickleReader._protocol,
    b"\x95": PickleReader._frame,
    b"(": PickleReader._mark,
    b"N": partial(PickleReader._push, value=None),
    b"\x88": partial(PickleReader._push, value=True),
    b"\x89": partial(PickleReader._push, value=False),
    b"K": partial(PickleReader._number, n_bytes=1),
    b"M": partial(PickleReader._number, n_bytes=2),
    b"J": partial(PickleReader._number, n_bytes=4, signed=True),
    b"\x8a": PickleReader._long,
    b"\x8c": partial(PickleReader._string, n_bytes=1),
    b"X": partial(PickleReader._string, n_bytes=4),
    b"\x8d": partial(PickleReader._string, n_bytes=8),
    b"C": partial(PickleReader._bytes, n_bytes=1),
    b"B": partial(PickleReader._bytes, n_bytes=4),
    b"\x8e": partial(PickleReader._bytes, n_bytes=8),
    b"\x96": partial(PickleReader._bytes, n_bytes=8),
    b"]": PickleReader._empty_list,
    b"a": lambda reader: reader._append([reader._stack.pop()]),
    b"e": lambda reader: reader._append(reader._since_mark()),
    b")": partial(PickleReader._push, value=()),
    b"\x85": partial(PickleReader._tuple, n=1),
    b"\x86": partial(PickleReader._tuple, n=2),
    b"\x87": partial(PickleReader._tuple, n=3),
    b"t": PickleReader._tuple_since_mark,
    b"q": lambda reader: reader._put(reader._integer(1)),
    b"r": lambda reader: reader._put(reader._integer(4)),
    b"\x94": lambda reader: reader._put(len(reader._memo)),
    b"h": lambda reader: reader._get(reader._integer(1)),
    b"j": lambda reader: reader._get(reader._integer(4)),
    b"c": PickleReader._global,
    b"\x93": PickleReader._stack_global,
    b"R": PickleReader._reduce,
    b"b": PickleReader._build,
}

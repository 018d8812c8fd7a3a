"""Comparisons of 64 numbers at a time in kernels, as instructions on vectors; the same in Python, for ``compiled.interpreted``.

LLVM divides the vectors into those that the processor has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wikidx.base.compiled  # noqa: F401 - before numba: it tells which variables of the environment numba refuses

# isort: split
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

CHUNK = 64

_VECTOR = ir.VectorType(ir.IntType(16), CHUNK)


def reach(values: NDArray[np.uint16], start: int, limit: np.uint16) -> np.uint64:
    """Return bits for the 64 values from ``start`` on, the lowest for the first: whether they are at least ``limit``."""
    bits: NDArray[np.uint64] = np.packbits(values[start : start + CHUNK] >= limit, bitorder="little").view("<u8")
    return np.uint64(bits[0])


def clear(values: NDArray[np.uint16], start: int) -> None:
    """Set the 64 values from ``start`` on to 0."""
    values[start : start + CHUNK] = 0


def keep(values: NDArray[np.uint16], start: int, bits: np.uint64) -> None:
    """Set those of the 64 values from ``start`` on to 0 whose bits are 0."""
    values[start : start + CHUNK] *= np.unpackbits(np.array([bits], dtype="<u8").view(np.uint8), bitorder="little")


def lowest_bit(bits: np.uint64) -> np.int64:
    """Return the position of the lowest set bit; there must be one."""
    return np.int64((int(bits) & -int(bits)).bit_length() - 1)


def _vector(context: Any, builder: Any, array_type: Any, array: Any, start: Any) -> Any:  # noqa: ANN401 - numba's types
    """Return a pointer to the vector of 64 values from ``start`` on."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _reach(_typing: Any, values: Any, _start: Any, _limit: Any) -> Any:  # noqa: ANN401
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        array, start, limit = arguments
        loaded = builder.load(_vector(context, builder, signature.args[0], array, start), align=2)
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), limit, ir.Constant(ir.IntType(32), 0))
        limits = builder.shuffle_vector(
            first, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), CHUNK), [0] * CHUNK)
        )
        return builder.bitcast(builder.icmp_unsigned(">=", loaded, limits), ir.IntType(CHUNK))

    return types.uint64(values, types.int64, types.uint16), generate


@intrinsic  # type: ignore[untyped-decorator]
def _clear(_typing: Any, values: Any, _start: Any) -> Any:  # noqa: ANN401
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:  # noqa: ANN401
        builder.store(ir.Constant(_VECTOR, None), _vector(context, builder, signature.args[0], *arguments), align=2)

    return types.void(values, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _keep(_typing: Any, values: Any, _start: Any, _bits: Any) -> Any:  # noqa: ANN401
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:  # noqa: ANN401
        array, start, bits = arguments
        vector = _vector(context, builder, signature.args[0], array, start)
        kept = builder.bitcast(bits, ir.VectorType(ir.IntType(1), CHUNK))
        builder.store(builder.select(kept, builder.load(vector, align=2), ir.Constant(_VECTOR, None)), vector, align=2)

    return types.void(values, types.int64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_bit(_typing: Any, bits: Any) -> Any:  # noqa: ANN401
    return types.int64(bits), lambda _context, builder, _signature, words: builder.cttz(words[0], ir.Constant(ir.IntType(1), 1))


@overload(reach, strict=False)  # type: ignore[untyped-decorator]
def _overload_reach(values: object, start: object, limit: object) -> Callable[..., Any]:
    return lambda values, start, limit: _reach(values, start, np.uint16(limit))


@overload(clear, strict=False)  # type: ignore[untyped-decorator]
def _overload_clear(values: object, start: object) -> Callable[..., Any]:
    return lambda values, start: _clear(values, start)


@overload(keep, strict=False)  # type: ignore[untyped-decorator]
def _overload_keep(values: object, start: object, bits: object) -> Callable[..., Any]:
    return lambda values, start, bits: _keep(values, start, bits)


@overload(lowest_bit, strict=False)  # type: ignore[untyped-decorator]
def _overload_lowest_bit(bits: object) -> Callable[..., Any]:
    return lambda bits: _lowest_bit(np.uint64(bits))

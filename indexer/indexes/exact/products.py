"""Inner products of rows with queries, in float32: the inner loop of exact search on a CPU.

Sixteen queries (or eight) form a panel: component by component, all queries side by side. Each component of a row is multiplied by those
of all queries at once, for as many rows as there are registers to accumulate in. Rows are read in their stored layout, and the loop runs
at the CPU's multiplication rate. Every product is summed from the first component to the last: the bits of a score do not depend on the
batch, the panel, the thread or the position of the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import unpack_tuple
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

from wikidx.indexer.base import Scores, Vectors
from wikidx.indexer.machine.compiled import kernel

from .best_keys import Scored

PANEL, SMALL_PANEL = 16, 8
# The features that numba compiles for, which its settings can change, and which are part of its cache key
_, _, _FEATURES = cpu_target.target_context.codegen().magic_tuple()
ROWS = 24 if "+avx512f" in _FEATURES.split(",") else 6  # multiplied at once: 32 registers of 16 floats, or 16 of 8

_HALF_SIGN, _HALF_REST = np.uint32(0x8000), np.uint32(0x7FFF)
_HALF_EXPONENT, _NAN = np.uint32(0x7C00), np.uint32(0x7FC00000)
_EXPONENT_OFFSET = np.float32(2.0**112)  # for the difference of the exponent biases of float32 and float16

_Llvm = Any  # llvmlite has no types
_FLOAT, _BYTES = ir.FloatType(), ir.IntType(8).as_pointer()
_INT16, _INT32, _INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_TO_READ_INTO_SECOND_CACHE = [ir.Constant(_INT32, number) for number in (0, 2, 1)]


def panels_of(queries: Vectors) -> Vectors:
    """Return queries (Q, dim) as panels (P, dim, queries of a panel), filled up with zeros."""
    width = SMALL_PANEL if len(queries) <= SMALL_PANEL else PANEL
    padded = np.pad(queries, ((0, -len(queries) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, queries.shape[1]).transpose(0, 2, 1))


class Ahead(NamedTuple):
    """Memory to prefetch: its address, which may be invalid, and bytes per component."""

    address: np.int64
    step: int


@kernel
def score_rows(rows: Vectors, panel: Vectors, thresholds: Scores, scored: Scored, ahead: Ahead) -> None:
    """Score the first ``ROWS`` rows.

    Args:
        rows: float32 (ROWS or more, dim).
        panel: float32 (dim, queries).
        thresholds: float32 (queries,).
        scored: of ``ROWS`` rows and these queries; written.
        ahead: memory to prefetch meanwhile.
    """
    arguments = (
        rows.ctypes.data,
        len(panel),
        panel.ctypes.data,
        thresholds.ctypes.data,
        scored.scores.ctypes.data,
        scored.reached.ctypes.data,
        ahead.address,
        ahead.step,
    )
    if panel.shape[1] == PANEL:
        _score_panel(arguments)
    else:
        _score_small_panel(arguments)


@kernel
def widen(half_bits: NDArray[np.uint16], wide: Vectors) -> None:
    """Convert the bits of float16 to float32, infinities to NaN; both of shape (N, dim).

    Sign, exponent and fraction are moved to their places in a float32; multiplying by 2^112 corrects the exponent's bias, and is right for
    subnormal numbers as well. Non-finite values become NaN, so that no query returns their row.
    """
    wide_bits = wide.view(np.uint32)
    for row in range(len(half_bits)):
        narrow, bits, values = half_bits[row], wide_bits[row], wide[row]
        for i in range(len(narrow)):
            half = np.uint32(narrow[i])
            not_finite = _NAN if half & _HALF_EXPONENT == _HALF_EXPONENT else np.uint32(0)
            bits[i] = ((half & _HALF_REST) << np.uint32(13)) | ((half & _HALF_SIGN) << np.uint32(16)) | not_finite
        for i in range(len(values)):
            values[i] *= _EXPONENT_OFFSET


def _scorer(n_queries: int) -> _Llvm:
    """Return the machine code of ``score_rows`` for panels of this many queries, which no Python loop compiles to."""
    vector = ir.VectorType(_FLOAT, n_queries)
    no_vector, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(vector, [0.0] * n_queries)
    to_all = ir.Constant(ir.VectorType(_INT32, n_queries), [0] * n_queries)

    def generate(context: _Llvm, builder: _Llvm, signature: _Llvm, arguments: _Llvm) -> _Llvm:
        rows, dim, panel, thresholds, scores, reached, ahead, step = unpack_tuple(builder, arguments[0])
        multiply_add = _declared(builder, f"llvm.fmuladd.v{n_queries}f32", vector, [vector] * 3)
        prefetch = _declared(builder, "llvm.prefetch.p0i8", ir.VoidType(), [_BYTES, _INT32, _INT32, _INT32])

        before, loop, behind = builder.block, builder.append_basic_block("components"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        component, fetched = builder.phi(_INT64), builder.phi(_INT64)
        sums = [builder.phi(vector) for _ in range(ROWS)]
        queries = builder.load(_at(builder, panel, vector, component), align=4)
        added = []
        for number, so_far in enumerate(sums):
            place = builder.add(builder.mul(dim, ir.Constant(_INT64, number)), component)
            value = builder.insert_element(no_vector, builder.load(_at(builder, rows, _FLOAT, place)), ir.Constant(_INT32, 0))
            added.append(builder.call(multiply_add, [builder.shuffle_vector(value, no_vector, to_all), queries, so_far]))
        half_way = builder.add(fetched, builder.lshr(step, ir.Constant(_INT64, 1)))
        for address in (fetched, half_way):  # a cache line has 64 bytes, a step up to 96
            builder.call(prefetch, [builder.inttoptr(address, _BYTES), *_TO_READ_INTO_SECOND_CACHE])
        following = builder.add(component, ir.Constant(_INT64, 1))
        nexts = [(component, ir.Constant(_INT64, 0), following), (fetched, ahead, builder.add(fetched, step))]
        for variable, first, then in [*nexts, *((so_far, zeros, value) for so_far, value in zip(sums, added, strict=True))]:
            variable.add_incoming(first, before)
            variable.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed("<", following, dim), loop, behind)

        builder.position_at_end(behind)
        least = builder.load(_at(builder, thresholds, vector, ir.Constant(_INT64, 0)), align=4)
        for number, value in enumerate(added):
            row = ir.Constant(_INT64, number)
            builder.store(value, _at(builder, scores, vector, row), align=4)
            bits = builder.bitcast(builder.fcmp_ordered(">=", value, least), ir.IntType(n_queries))
            builder.store(bits if n_queries == PANEL else builder.zext(bits, _INT16), _at(builder, reached, _INT16, row))
        return context.get_dummy_value()

    @intrinsic
    def score(typing: _Llvm, addresses_and_numbers: _Llvm) -> _Llvm:
        return types.void(addresses_and_numbers), generate

    return score


def _declared(builder: _Llvm, name: str, result: _Llvm, parameters: list[_Llvm]) -> _Llvm:
    """Return a function of LLVM's own, declared once in a module."""
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, parameters), name)


def _at(builder: _Llvm, address: _Llvm, element: _Llvm, number: _Llvm) -> _Llvm:
    """Return the pointer to one of the elements at an address."""
    return builder.gep(builder.inttoptr(address, element.as_pointer()), [number])


_score_panel, _score_small_panel = _scorer(PANEL), _scorer(SMALL_PANEL)

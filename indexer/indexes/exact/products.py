"""Inner products of rows with queries, in float32: the inner loop of exact search on a CPU.

Sixteen queries, or eight, form a panel, which stores the queries' first components side by side, then their second components, and so
on. One instruction multiplies a component of a row by the same component of all queries. As many rows are multiplied together as there
are registers for their sums. Every inner product is summed from the first component to the last. Its bits therefore do not depend on the
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

from .best_keys import ScoredRows

PANEL, SMALL_PANEL = 16, 8
# CPU features that numba compiles for. numba's settings can change them; its cache key contains them.
_, _, _FEATURES = cpu_target.target_context.codegen().magic_tuple()
ROWS = 24 if "+avx512f" in _FEATURES.split(",") else 6  # rows multiplied together: for 32 registers of 16 floats, or 16 registers of 8

_HALF_SIGN, _HALF_REST = np.uint32(0x8000), np.uint32(0x7FFF)
_HALF_EXPONENT, _NAN = np.uint32(0x7C00), np.uint32(0x7FC00000)
_EXPONENT_OFFSET = np.float32(2.0**112)  # the exponent biases of float32 and float16 differ by 112

_Llvm = Any  # llvmlite has no types
_FLOAT, _BYTES = ir.FloatType(), ir.IntType(8).as_pointer()
_INT16, _INT32, _INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_TO_READ_INTO_SECOND_CACHE = [ir.Constant(_INT32, number) for number in (0, 2, 1)]


def pack_panels(queries: Vectors) -> Vectors:
    """Return queries, shape (Q, dim), as panels, shape (panels, dim, queries of a panel); zeros fill the last panel."""
    width = SMALL_PANEL if len(queries) <= SMALL_PANEL else PANEL
    padded = np.pad(queries, ((0, -len(queries) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, queries.shape[1]).transpose(0, 2, 1))


class Prefetch(NamedTuple):
    """Memory to prefetch: its address, and the bytes to prefetch per component of the row. The address may be invalid."""

    address: np.int64
    step: int


@kernel
def score_rows(rows: Vectors, panel: Vectors, thresholds: Scores, scored: ScoredRows, prefetch: Prefetch) -> None:
    """Score the first ``ROWS`` rows for the queries of a panel.

    Args:
        rows: float32 (ROWS or more, dim).
        panel: float32 (dim, queries).
        thresholds: float32 (queries,).
        scored: output for ``ROWS`` rows and these queries.
        prefetch: memory to prefetch.
    """
    arguments = (
        rows.ctypes.data,
        len(panel),
        panel.ctypes.data,
        thresholds.ctypes.data,
        scored.scores.ctypes.data,
        scored.reached.ctypes.data,
        prefetch.address,
        prefetch.step,
    )
    if panel.shape[1] == PANEL:
        _score_panel(arguments)
    else:
        _score_small_panel(arguments)


@kernel
def widen(half_bits: NDArray[np.uint16], wide: Vectors) -> None:
    """Convert the bits of float16 to float32, both of shape (N, dim).

    Sign, exponent and fraction are moved to their places in a float32. A multiplication by 2^112 then corrects the bias of the exponent,
    also for subnormal numbers. Infinities become NaN, so that no query returns their row.
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
    """Return ``score_rows`` for panels of ``n_queries``, as a numba intrinsic in LLVM's intermediate language."""
    vector = ir.VectorType(_FLOAT, n_queries)
    no_vector, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(vector, [0.0] * n_queries)
    to_all = ir.Constant(ir.VectorType(_INT32, n_queries), [0] * n_queries)

    def generate(context: _Llvm, builder: _Llvm, signature: _Llvm, arguments: _Llvm) -> _Llvm:
        rows, dim, panel, thresholds, scores, reached, address, step = unpack_tuple(builder, arguments[0])
        multiply_add = _declare_function(builder, f"llvm.fmuladd.v{n_queries}f32", vector, [vector] * 3)
        prefetch = _declare_function(builder, "llvm.prefetch.p0i8", ir.VoidType(), [_BYTES, _INT32, _INT32, _INT32])

        entry, loop, done = builder.block, builder.append_basic_block("components"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        component, fetched = builder.phi(_INT64), builder.phi(_INT64)
        sums = [builder.phi(vector) for _ in range(ROWS)]
        queries = builder.load(_element_pointer(builder, panel, vector, component), align=4)
        added = []
        for number, total in enumerate(sums):
            offset = builder.add(builder.mul(dim, ir.Constant(_INT64, number)), component)
            value = builder.insert_element(no_vector, builder.load(_element_pointer(builder, rows, _FLOAT, offset)), ir.Constant(_INT32, 0))
            added.append(builder.call(multiply_add, [builder.shuffle_vector(value, no_vector, to_all), queries, total]))
        middle = builder.add(fetched, builder.lshr(step, ir.Constant(_INT64, 1)))
        for line in (fetched, middle):  # two prefetches: a step has up to 96 bytes, a cache line 64
            builder.call(prefetch, [builder.inttoptr(line, _BYTES), *_TO_READ_INTO_SECOND_CACHE])
        next_component = builder.add(component, ir.Constant(_INT64, 1))
        phis = [(component, ir.Constant(_INT64, 0), next_component), (fetched, address, builder.add(fetched, step))]
        for variable, first, following in [*phis, *((total, zeros, value) for total, value in zip(sums, added, strict=True))]:
            variable.add_incoming(first, entry)
            variable.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", next_component, dim), loop, done)

        builder.position_at_end(done)
        threshold = builder.load(_element_pointer(builder, thresholds, vector, ir.Constant(_INT64, 0)), align=4)
        for number, value in enumerate(added):
            row = ir.Constant(_INT64, number)
            builder.store(value, _element_pointer(builder, scores, vector, row), align=4)
            bits = builder.bitcast(builder.fcmp_ordered(">=", value, threshold), ir.IntType(n_queries))
            builder.store(bits if n_queries == PANEL else builder.zext(bits, _INT16), _element_pointer(builder, reached, _INT16, row))
        return context.get_dummy_value()

    @intrinsic
    def score(typing: _Llvm, addresses_and_numbers: _Llvm) -> _Llvm:
        return types.void(addresses_and_numbers), generate

    return score


def _declare_function(builder: _Llvm, name: str, result: _Llvm, parameters: list[_Llvm]) -> _Llvm:
    """Return an LLVM intrinsic, declared once per module."""
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, parameters), name)


def _element_pointer(builder: _Llvm, address: _Llvm, element: _Llvm, number: _Llvm) -> _Llvm:
    """Return a pointer to element ``number`` of an array at an address."""
    return builder.gep(builder.inttoptr(address, element.as_pointer()), [number])


_score_panel, _score_small_panel = _scorer(PANEL), _scorer(SMALL_PANEL)

"""Inner products of rows with queries, in float32 or in integers: the inner loop of searches on a CPU.

Sixteen queries, or eight, form a panel, which stores the queries' first components side by side, then their second components, and so
on. One instruction multiplies a component of a row by the same component of all queries. As many rows are multiplied together as there
are registers for their sums. Every inner product is summed from the first component to the last. Its bits therefore do not depend on the
batch, the panel, the thread or the position of the row.

Integers of 16 bits are multiplied in pairs: a component is then two integers in the bits of one int32. Sums of 32 bits are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wikidx.base.compiled import kernel  # before numba: it tells which variables of the environment numba refuses

# isort: split
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import unpack_tuple
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Scores, Vectors

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


def pack_panels(queries: NDArray[Any]) -> NDArray[Any]:
    """Return queries, float32 or int32 of shape (Q, dim), as panels, shape (panels, dim, queries of a panel); zeros fill the last panel."""
    width = SMALL_PANEL if len(queries) <= SMALL_PANEL else PANEL
    padded = np.pad(queries, ((0, -len(queries) % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, width, queries.shape[1]).transpose(0, 2, 1))


class ScoredRows(NamedTuple):
    """Scores of rows, float32 (rows, queries). Bit q of ``reached``, uint16 (rows,), is set if the row reaches query q's threshold."""

    scores: NDArray[np.float32]
    reached: NDArray[np.uint16]


class Prefetch(NamedTuple):
    """Memory to prefetch: its address, and the bytes to prefetch per component of the row. The address may be invalid."""

    address: np.int64
    step: int


@kernel
def score_rows(rows: Vectors, panel: Vectors, thresholds: Scores, scored: ScoredRows, prefetch: Prefetch) -> None:
    """Score the first ``ROWS`` rows for the queries of a panel.

    Args:
        rows: float32, or int32 with pairs of integers, of shape (ROWS or more, dim).
        panel: of the same type, shape (dim, queries).
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
        panel[0, 0],
    )
    if panel.shape[1] == PANEL:
        _score_panel(arguments)
    else:
        _score_small_panel(arguments)


def candidate_scores(queries: Vectors, vectors: Vectors, numbers: Rows) -> Scores:
    """Return the inner products of each query with its candidates, bit for bit those of exact search.

    Args:
        queries: float32, shape (Q, dim).
        vectors: float32, shape (n, dim).
        numbers: number of each candidate's vector, shape (Q, C); of a number below 0 the score is arbitrary.
    """
    scores, dim = np.empty(numbers.shape, dtype=np.float32), queries.shape[1]
    panel, rows = np.zeros((dim, SMALL_PANEL), dtype=np.float32), np.zeros((ROWS, dim), dtype=np.float32)
    scored = ScoredRows(np.empty((ROWS, SMALL_PANEL), dtype=np.float32), np.empty(ROWS, dtype=np.uint16))
    _score_candidates(queries, vectors, numbers, (panel, rows, scored), scores)
    return scores


@kernel
def _score_candidates(
    queries: Vectors, vectors: Vectors, numbers: Rows, memory: tuple[Vectors, Vectors, ScoredRows], scores: Scores
) -> None:
    """Score candidates ``ROWS`` at a time by a panel with one query. The working memory is the panel, the rows and their scores."""
    panel, rows, scored = memory
    for query in range(len(queries)):
        panel[:, 0] = queries[query]
        for start in range(0, numbers.shape[1], len(rows)):
            n_rows = min(len(rows), numbers.shape[1] - start)
            for row in range(n_rows):
                rows[row] = vectors[max(0, numbers[query, start + row])]
            score_rows(rows, panel, panel[0], scored, Prefetch(np.int64(rows.ctypes.data), 0))
            scores[query, start : start + n_rows] = scored.scores[:n_rows, 0]


@kernel
def widen_codes(codes: NDArray[np.int8], pairs: NDArray[np.int32]) -> None:
    """Convert int8, shape (N, dim), to pairs of int16, shape (N or more, pairs); an odd last component keeps its partner."""
    wide = pairs.view(np.int16)
    for row in range(len(codes)):
        for i in range(codes.shape[1]):
            wide[row, i] = codes[row, i]


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
    """Return ``score_rows`` for panels of ``n_queries``, as a numba intrinsic in LLVM's intermediate language.

    The type of the last argument, a component, says in which numbers to multiply.
    """
    floats, integers = ir.VectorType(_FLOAT, n_queries), ir.VectorType(_INT32, n_queries)

    def generate(context: _Llvm, builder: _Llvm, signature: _Llvm, arguments: _Llvm) -> _Llvm:
        rows, dim, panel, thresholds, scores, reached, address, step, component_read = unpack_tuple(builder, arguments[0])
        element, is_integer = component_read.type, component_read.type == _INT32
        vector = integers if is_integer else floats
        zeros = ir.Constant(vector, [0] * n_queries)
        multiply_add = _declare_function(builder, f"llvm.fmuladd.v{n_queries}f32", floats, [floats] * 3)
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
            factors = _broadcast(builder, _element_pointer(builder, rows, element, offset), n_queries), queries
            added.append(_add_pairs(builder, *factors, total) if is_integer else builder.call(multiply_add, [*factors, total]))
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
        threshold = builder.load(_element_pointer(builder, thresholds, floats, ir.Constant(_INT64, 0)), align=4)
        for number, total in enumerate(added):
            row, value = ir.Constant(_INT64, number), builder.sitofp(total, floats) if is_integer else total
            builder.store(value, _element_pointer(builder, scores, floats, row), align=4)
            bits = builder.bitcast(builder.fcmp_ordered(">=", value, threshold), ir.IntType(n_queries))
            builder.store(bits if n_queries == PANEL else builder.zext(bits, _INT16), _element_pointer(builder, reached, _INT16, row))
        return context.get_dummy_value()

    @intrinsic
    def score(typing: _Llvm, addresses_and_numbers: _Llvm) -> _Llvm:
        return types.void(addresses_and_numbers), generate

    return score


def _broadcast(builder: _Llvm, pointer: _Llvm, n: int) -> _Llvm:
    """Return a vector of n times the element at a pointer."""
    element = builder.load(pointer)
    empty, to_all = ir.Constant(ir.VectorType(element.type, n), ir.Undefined), ir.Constant(ir.VectorType(_INT32, n), [0] * n)
    return builder.shuffle_vector(builder.insert_element(empty, element, ir.Constant(_INT32, 0)), empty, to_all)


def _add_pairs(builder: _Llvm, first: _Llvm, second: _Llvm, total: _Llvm) -> _Llvm:
    """Return ``total`` plus the inner products of pairs of int16. LLVM knows this pattern: a CPU has one instruction for it."""
    n = total.type.count
    narrow, wide = ir.VectorType(_INT16, 2 * n), ir.VectorType(_INT32, 2 * n)
    products = builder.mul(*(builder.sext(builder.bitcast(pairs, narrow), wide) for pairs in (first, second)))
    even, odd = (ir.Constant(total.type, list(range(start, 2 * n, 2))) for start in (0, 1))
    return builder.add(total, builder.add(*(builder.shuffle_vector(products, products, half) for half in (even, odd))))


def _declare_function(builder: _Llvm, name: str, result: _Llvm, parameters: list[_Llvm]) -> _Llvm:
    """Return an LLVM intrinsic, declared once per module."""
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, parameters), name)


def _element_pointer(builder: _Llvm, address: _Llvm, element: _Llvm, number: _Llvm) -> _Llvm:
    """Return a pointer to element ``number`` of an array at an address."""
    return builder.gep(builder.inttoptr(address, element.as_pointer()), [number])


_score_panel, _score_small_panel = _scorer(PANEL), _scorer(SMALL_PANEL)

"""Kernel that numbers the terms of texts for ``analyzer.TermNumbers``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis.porter import Units
from wikidx.indexer.analysis.terms import FIRST_NOT_ASCII, FIRST_OF_TWO_UNITS, HIGH_SURROGATES, LOW_SURROGATES, Rules, write_term
from wikidx.indexer.analysis.tokens import MAX_TOKEN_UNITS, next_token

_MAX_TERM_BYTES = 3 * MAX_TOKEN_UNITS
_FREE = -1
_STOPPED = -1

_N_RECENT = 1 << 15
_LONGEST_RECENT = 8

_AFTER_SURROGATES = 0xE000
_FIRST_OF_THREE_BYTES = 0x800


class Table(NamedTuple):
    """Hash table of terms and their numbers, with linear probing. At most half of its slots are used.

    A cache holds tokens of up to 8 ASCII characters. ``recent_tokens[p]`` is the latest token with hash p, packed into an integer;
    ``recent_numbers[p]`` is the number of its term, or _STOPPED.
    """

    slots: NDArray[np.int32]  # (a power of two,): number of a term, or _FREE
    starts: NDArray[np.int64]  # term i in UTF-8 is pool[starts[i]:starts[i + 1]]
    pool: NDArray[np.uint8]
    size: NDArray[np.int64]  # (1,): number of terms
    recent_tokens: NDArray[np.int64]
    recent_numbers: NDArray[np.int32]


def empty_table() -> Table:
    """Return a table without terms."""
    return Table(
        slots=np.full(256, _FREE, dtype=np.int32),
        starts=np.zeros(129, dtype=np.int64),
        pool=np.zeros(2048, dtype=np.uint8),
        size=np.zeros(1, dtype=np.int64),
        recent_tokens=np.zeros(_N_RECENT, dtype=np.int64),
        recent_numbers=np.zeros(_N_RECENT, dtype=np.int32),
    )


@kernel
def number_terms(
    points: NDArray[np.uint32], bounds: NDArray[np.int64], rules: Rules, table: Table, numbers: NDArray[np.int32], ends: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    """Analyse texts and number their terms; new terms get numbers in order of appearance.

    Args:
        points: the concatenated code points of all texts.
        bounds: text i is ``points[bounds[i]:bounds[i + 1]]``.
        rules: rules of the analysis.
        table: already numbered terms; modified in place, or copied when it grows.
        numbers: output: the concatenated term numbers of all texts. At least as long as ``points``.
        ends: output: the position after each text's last number.

    Returns:
        The arrays of the updated table.
    """
    units = np.empty(MAX_TOKEN_UNITS, dtype=np.uint16)
    n = np.int64(0)
    for text in range(len(ends)):
        position, stop = bounds[text], bounds[text + 1]
        while position < stop:
            n_read, n_written = _number_until_full(points[position:stop], rules, table, units, numbers[n:])
            position += n_read
            n += n_written
            if position < stop:
                table = _enlarge(table)
        ends[text] = n
    return table.slots, table.starts, table.pool, table.size, table.recent_tokens, table.recent_numbers


@kernel
def _number_until_full(
    points: NDArray[np.uint32], rules: Rules, table: Table, units: Units, numbers: NDArray[np.int32]
) -> tuple[np.int64, int]:
    """Number the terms of a text until it ends or the table is full.

    Returns:
        The number of code points read, and the number of term numbers written.
    """
    position, n, stop = np.int64(0), 0, len(points)
    while position < stop and _has_room(table):
        begin, position = next_token(points, position, stop, rules.token)
        packed = _pack(points, begin, position)
        slot = _hash(packed) & (_N_RECENT - 1)
        if packed > 0 and table.recent_tokens[slot] == packed:
            number = np.int64(table.recent_numbers[slot])
        else:
            length = write_term(points, begin, position, rules, units)
            number = _number_of(units, length, table) if length > 0 else np.int64(_STOPPED)
            if packed > 0:
                table.recent_tokens[slot] = packed
                table.recent_numbers[slot] = number
        if number != _STOPPED:
            numbers[n] = number
            n += 1
    return position, n


@kernel
def _pack(points: NDArray[np.uint32], begin: int, end: int) -> np.int64:
    """Return a token of up to 8 ASCII characters as an integer; 0 for any other token."""
    packed = np.int64(0)
    if end - begin > _LONGEST_RECENT:
        return packed
    for i in range(begin, end):
        if points[i] >= FIRST_NOT_ASCII:
            return np.int64(0)
        packed = packed << 8 | np.int64(points[i])
    return packed


@kernel
def _hash(packed: np.int64) -> np.int64:
    """Return a 31-bit hash of a packed token."""
    mixed = ((packed ^ packed >> 32) & 0xFFFFFFFF) * 0x61C88647
    return (mixed ^ mixed >> 32) & 0x7FFFFFFF


@kernel
def _number_of(units: Units, n: int, table: Table) -> np.int64:
    """Return the number of a term; a new term gets the next number. The table must have room."""
    new = table.size[0]
    begin = table.starts[new]
    end = _write_utf8(units, n, table.pool, begin)  # a new term stays in the pool
    slot = _slot_of(begin, end, table.slots, table.starts, table.pool)
    if table.slots[slot] == _FREE:
        table.slots[slot] = new
        table.starts[new + 1] = end
        table.size[0] = new + 1
    return np.int64(table.slots[slot])


@kernel
def _slot_of(begin: int, end: int, slots: NDArray[np.int32], starts: NDArray[np.int64], pool: NDArray[np.uint8]) -> np.int64:
    """Return the slot of the term ``pool[begin:end]``: the slot with its number, or a free slot for a new term."""
    hashed = np.int64(0x811C9DC5)  # FNV-1a, 32 bits
    for i in range(begin, end):
        hashed = (hashed ^ np.int64(pool[i])) * 0x01000193 & 0xFFFFFFFF
    slot = hashed & (len(slots) - 1)
    while slots[slot] != _FREE and not _is_equal(begin, end, starts[slots[slot]], starts[slots[slot] + 1], pool):
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@kernel
def _is_equal(begin: int, end: int, other_begin: int, other_end: int, pool: NDArray[np.uint8]) -> bool:
    if end - begin != other_end - other_begin:
        return False
    for i in range(end - begin):
        if pool[begin + i] != pool[other_begin + i]:
            return False
    return True


@kernel
def _has_room(table: Table) -> bool:
    n = table.size[0]
    return bool(2 * (n + 1) <= len(table.slots) and table.starts[n] + _MAX_TERM_BYTES <= len(table.pool))


@kernel
def _enlarge(table: Table) -> Table:
    """Return a copy of the table with twice the capacity."""
    n = table.size[0]
    pool = np.empty(2 * len(table.pool), dtype=np.uint8)
    for i in range(table.starts[n]):
        pool[i] = table.pool[i]
    starts = np.empty(len(table.slots) + 1, dtype=np.int64)
    for i in range(n + 1):
        starts[i] = table.starts[i]
    slots = np.empty(2 * len(table.slots), dtype=np.int32)
    for i in range(len(slots)):
        slots[i] = _FREE
    for number in range(n):
        slots[_slot_of(starts[number], starts[number + 1], slots, starts, pool)] = number
    return Table(slots, starts, pool, table.size, table.recent_tokens, table.recent_numbers)


@kernel
def _write_utf8(units: Units, n: int, pool: NDArray[np.uint8], position: int) -> int:
    """Write ``units[:n]`` as UTF-8 to ``pool`` from ``position`` on; return the end position. Surrogates must be paired."""
    i = 0
    while i < n:
        point = np.int64(units[i])
        i += 1
        if point < FIRST_NOT_ASCII:
            pool[position] = point
            position += 1
            continue
        if point < _FIRST_OF_THREE_BYTES:
            pool[position] = 0xC0 | point >> 6
        else:
            if point < HIGH_SURROGATES or point >= _AFTER_SURROGATES:
                pool[position] = 0xE0 | point >> 12
            else:
                point = FIRST_OF_TWO_UNITS + (point - HIGH_SURROGATES << 10) + (np.int64(units[i]) - LOW_SURROGATES)
                i += 1
                pool[position] = 0xF0 | point >> 18
                position += 1
                pool[position] = 0x80 | point >> 12 & 0x3F
            position += 1
            pool[position] = 0x80 | point >> 6 & 0x3F
        position += 1
        pool[position] = 0x80 | point & 0x3F
        position += 1
    return position

"""Texts -> the numbers of their terms: the kernel behind ``TermNumbers``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.analysis.terms import Rules, write_term
from wikidx.indexer.analysis.tokens import MAX_TOKEN_UNITS, next_token
from wikidx.indexer.analysis.utf import FIRST_NOT_ASCII, Units, write_utf8
from wikidx.indexer.machine.compiled import kernel

_MAX_TERM_BYTES = 3 * MAX_TOKEN_UNITS
_FREE = -1
_STOPPED = -1

_N_RECENT = 1 << 15
_LONGEST_RECENT = 8


class Table(NamedTuple):
    """Terms by number and numbers by term: open addressing, linear probing, at most half full. Replaced by a larger copy when full.

    Tokens of up to 8 ASCII characters, the most frequent ones, are cached: ``recent_tokens[p]`` is the latest token with hash p, packed
    into an integer, and ``recent_numbers[p]`` the number of its term.
    """

    slots: NDArray[np.int32]  # a power of two of them: a number, or _FREE
    starts: NDArray[np.int64]  # UTF-8 of term i is pool[starts[i]:starts[i + 1]]
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
) -> Table:
    """Analyse texts and number their terms, new terms in order of appearance.

    Args:
        points: the code points of all texts, one after another.
        bounds: text i is ``points[bounds[i]:bounds[i + 1]]``.
        rules: of the analysis.
        table: already numbered terms; modified in place, or copied when it grows.
        numbers: output, the numbers of all texts one after another; at least as long as ``points``.
        ends: output, the end of each text's numbers.

    Returns:
        The updated table.
    """
    units = np.empty(MAX_TOKEN_UNITS, dtype=np.uint16)
    n = np.int64(0)
    for text in range(len(ends)):
        at, stop = bounds[text], bounds[text + 1]
        while at < stop:
            n_read, n_written = _number_while_room(points[at:stop], rules, table, units, numbers[n:])
            at += n_read
            n += n_written
            if at < stop:
                table = _enlarged(table)
        ends[text] = n
    return table


@kernel
def _number_while_room(
    points: NDArray[np.uint32], rules: Rules, table: Table, units: Units, numbers: NDArray[np.int32]
) -> tuple[np.int64, int]:
    """Number the terms of a text until it ends or the table is full; return the numbers of code points read and of numbers written."""
    at, n, stop = np.int64(0), 0, len(points)
    while at < stop and _has_room(table):
        begin, at = next_token(points, at, stop, rules.token)
        packed = _pack(points, begin, at)
        place = _hash(packed) & (_N_RECENT - 1)
        if packed > 0 and table.recent_tokens[place] == packed:
            number = np.int64(table.recent_numbers[place])
        else:
            length = write_term(points, begin, at, rules, units)
            number = _number_of(units, length, table) if length > 0 else np.int64(_STOPPED)
            if packed > 0:
                table.recent_tokens[place] = packed
                table.recent_numbers[place] = number
        if number != _STOPPED:
            numbers[n] = number
            n += 1
    return at, n


@kernel
def _pack(points: NDArray[np.uint32], begin: int, end: int) -> np.int64:
    """Return a token of up to 8 ASCII characters as an integer, and 0 for any other."""
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
    """Return 31 mixed bits."""
    mixed = ((packed ^ packed >> 32) & 0xFFFFFFFF) * 0x61C88647
    return (mixed ^ mixed >> 32) & 0x7FFFFFFF


@kernel
def _number_of(units: Units, n: int, table: Table) -> np.int64:
    """Return the number of a term, a new one if it has none; the table must have room."""
    new = table.size[0]
    begin = table.starts[new]
    end = write_utf8(units, n, table.pool, begin)  # where it stays if it is new
    slot = _slot_of(begin, end, table.slots, table.starts, table.pool)
    if table.slots[slot] == _FREE:
        table.slots[slot] = new
        table.starts[new + 1] = end
        table.size[0] = new + 1
    return np.int64(table.slots[slot])


@kernel
def _slot_of(begin: int, end: int, slots: NDArray[np.int32], starts: NDArray[np.int64], pool: NDArray[np.uint8]) -> np.int64:
    """Return the slot of the term ``pool[begin:end]``: the one with its number, or the free one for it."""
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
def _enlarged(table: Table) -> Table:
    """Return a copy of twice the capacity."""
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

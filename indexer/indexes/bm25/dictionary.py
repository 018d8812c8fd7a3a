"""Distinct terms, numbered: an open-addressing hash table in plain arrays, so that kernels use it, in memory or memory-mapped.

Term ``i`` is the UTF-8 bytes ``pool[ends[i - 1] : ends[i]]``. A slot holds a term's number + 1, or 0 if it is free; a term is in the
first slot that was free from its hash on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import InputError
from wikidx.indexer.machine.compiled import kernel

_SLOTS_PER_TERM = 2  # at least; a growing table has up to twice as many
_MOST_BYTES, _MOST_TERMS = 2**32 - 1, 2**31 - 1  # limits of a table
_FNV_OFFSET, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # FNV-1a, 64 bits


class HashedTerms(NamedTuple):
    """Terms in the order of their numbers, and their hash slots."""

    pool: NDArray[np.uint8]
    ends: NDArray[np.uint32]
    slots: NDArray[np.uint32]


class Dictionary:
    """A growing table that numbers terms in the order of their first appearance. Not thread-safe."""

    def __init__(self) -> None:
        self._terms = HashedTerms(np.empty(1 << 16, np.uint8), np.empty(1 << 12, np.uint32), np.zeros(1 << 14, np.uint32))
        self._n_terms = 0

    def __len__(self) -> int:
        return self._n_terms

    def add(self, pool: NDArray[np.uint8], ends: NDArray[Any]) -> NDArray[np.int32]:
        """Return the numbers of terms, int32, shape (len(ends),); a new term gets the next number.

        Raises:
            InputError: there are more distinct terms than the table can number.
        """
        numbers = np.empty(len(ends), dtype=np.int32)
        self._make_room(len(ends), len(pool))
        self._n_terms = _add_all(pool, ends, self._terms, self._n_terms, numbers)
        return numbers

    def table(self) -> HashedTerms:
        """Return the terms so far, with arrays cut to them and the slots of a finished table."""
        pool, ends, _ = self._terms
        n_bytes = int(ends[self._n_terms - 1]) if self._n_terms else 0
        slots = np.zeros(_SLOTS_PER_TERM * self._n_terms + 1, np.uint32)
        table = HashedTerms(pool[:n_bytes], ends[: self._n_terms], slots)
        _fill_slots(table)
        return table

    def terms_from(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        """Return the terms from number ``first`` on: pool and ends, in the form of ``add``."""
        pool, ends, _ = self._terms
        before = ends[first - 1] if first else np.uint32(0)
        return pool[before : ends[self._n_terms - 1] if self._n_terms else 0], ends[first : self._n_terms] - before

    def _make_room(self, n_more_terms: int, n_more_bytes: int) -> None:
        pool, ends, slots = self._terms
        n_bytes = (int(ends[self._n_terms - 1]) if self._n_terms else 0) + n_more_bytes
        n_terms = self._n_terms + n_more_terms
        if n_bytes > _MOST_BYTES or n_terms > _MOST_TERMS:
            raise InputError(
                f"the passages have {n_terms:,} distinct terms of {n_bytes / 1e9:.1f} GB, a bm25 index can have {_MOST_TERMS:,} of "
                f"{_MOST_BYTES / 1e9:.1f} GB: divide the corpus into several"
            )
        if n_bytes > len(pool):
            pool = _grown(pool, n_bytes)
        if n_terms > len(ends):
            ends = _grown(ends, n_terms)
        enlarge = _SLOTS_PER_TERM * n_terms > len(slots)
        if enlarge:
            slots = np.zeros(2 * _SLOTS_PER_TERM * n_terms, np.uint32)
        self._terms = HashedTerms(pool, ends, slots)
        if enlarge:
            _fill_slots(HashedTerms(pool, ends[: self._n_terms], slots))


def _grown(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a copy with twice the capacity for ``n`` elements."""
    larger = np.empty(2 * n, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def find(table: HashedTerms, text: NDArray[np.uint8]) -> np.int64:
    """Return the number of the term with these bytes; if there is none, -1 - (the slot for it)."""
    hashed = _FNV_OFFSET
    for byte in text:
        hashed = (hashed ^ np.uint64(byte)) * _FNV_PRIME
    hashed ^= hashed >> np.uint64(29)  # mix FNV's good low bits into the high ones, which are used
    n_slots = len(table.slots)
    slot = np.int64(((hashed & np.uint64(0xFFFFFFFF)) * np.uint64(n_slots)) >> np.uint64(32))
    while table.slots[slot] != 0:
        number = np.int64(table.slots[slot]) - 1
        if _is_term(table, number, text):
            return number
        slot = np.int64(slot + 1 if slot + 1 < n_slots else 0)
    return -1 - slot


@kernel
def _is_term(table: HashedTerms, number: int, text: NDArray[np.uint8]) -> bool:
    start = np.int64(table.ends[number - 1]) if number > 0 else 0
    if np.int64(table.ends[number]) - start != len(text):
        return False
    for i in range(len(text)):
        if table.pool[start + i] != text[i]:
            return False
    return True


@kernel
def _add_all(pool: NDArray[np.uint8], ends: NDArray[Any], table: HashedTerms, n_terms: int, numbers: NDArray[np.int32]) -> int:
    """Number terms, appending new ones to the ``n_terms`` of a table with room; return the new number of terms."""
    start = np.int64(0)
    for i in range(len(ends)):
        text = pool[start : np.int64(ends[i])]
        number = find(table, text)
        if number < 0:
            slot, number = -1 - number, n_terms
            at = np.int64(table.ends[n_terms - 1]) if n_terms > 0 else 0
            table.pool[at : at + len(text)] = text
            table.ends[n_terms] = at + len(text)
            n_terms += 1
            table.slots[slot] = n_terms
        numbers[i] = number
        start = np.int64(ends[i])
    return n_terms


@kernel
def _fill_slots(table: HashedTerms) -> None:
    """Insert all terms into free slots."""
    start = np.int64(0)
    for number in range(len(table.ends)):
        end = np.int64(table.ends[number])
        table.slots[-1 - find(table, table.pool[start:end])] = number + 1
        start = end


@kernel
def find_all(table: HashedTerms, pool: NDArray[np.uint8], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of terms, int64, shape (len(ends),); -1 for a term that the table does not have."""
    numbers = np.empty(len(ends), dtype=np.int64)
    start = np.int64(0)
    for i in range(len(ends)):
        numbers[i] = max(np.int64(-1), find(table, pool[start : np.int64(ends[i])]))
        start = np.int64(ends[i])
    return numbers

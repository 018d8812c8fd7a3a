"""Numbered distinct terms: a hash table in plain arrays for kernels, in memory or memory-mapped.

The UTF-8 bytes of term ``i`` are ``pool[ends[i - 1] : ends[i]]``. A slot holds the number of a term + 1; a free slot holds 0. Collisions
are resolved by linear probing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.base.errors import InputError

SLOTS_PER_TERM = 2  # minimum number of slots per term
_MAX_BYTES, _MAX_TERMS = 2**32 - 1, 2**31 - 1  # limits of a table
_FNV_OFFSET, _FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # FNV-1a, 64 bits


class HashedTerms(NamedTuple):
    """Terms in the order of their numbers, and their hash slots."""

    pool: NDArray[np.uint8]
    ends: NDArray[np.uint32]
    slots: NDArray[np.uint32]


class Dictionary:
    """A growing table that numbers terms in the order of their first appearance. Not thread-safe.

    Attributes:
        terms: the table; its arrays have spare capacity, and its slots those of the terms so far.
        n_terms: number of terms.
    """

    def __init__(self) -> None:
        self.terms = HashedTerms(np.empty(1 << 16, np.uint8), np.empty(1 << 12, np.uint32), np.zeros(1 << 14, np.uint32))
        self.n_terms = 0

    def __len__(self) -> int:
        return self.n_terms

    def add(self, pool: NDArray[np.uint8], ends: NDArray[Any]) -> NDArray[np.int32]:
        """Return the numbers of terms, int32, shape (len(ends),). A new term gets the next number.

        Raises:
            InputError: there are more distinct terms than the table can hold.
        """
        numbers = np.empty(len(ends), dtype=np.int32)
        self.reserve(len(ends), len(pool))
        self.n_terms = _add_all(pool, ends, self.terms, self.n_terms, numbers)
        return numbers

    def table(self) -> HashedTerms:
        """Return a table of the terms so far, without spare capacity."""
        pool, ends = self.pool_and_ends()
        slots = np.zeros(SLOTS_PER_TERM * self.n_terms + 1, np.uint32)
        table = HashedTerms(pool, ends, slots)
        _fill_slots(table)
        return table

    def pool_and_ends(self, first: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        """Return the pool and the ends of the terms numbered ``first`` and higher, as arguments for ``add``."""
        before, end = (self.terms.ends[n - 1] if n else np.uint32(0) for n in (first, self.n_terms))
        return self.terms.pool[before:end], self.terms.ends[first : self.n_terms] - before

    def reserve(self, n_more_terms: int, n_more_bytes: int) -> None:
        """Make room for more terms; raises as ``add`` does."""
        pool, ends, slots = self.terms
        n_bytes = (int(ends[self.n_terms - 1]) if self.n_terms else 0) + n_more_bytes
        n_terms = self.n_terms + n_more_terms
        if n_bytes > _MAX_BYTES or n_terms > _MAX_TERMS:
            raise InputError(
                f"the passages have {n_terms:,} distinct terms of {n_bytes / 1e9:.1f} GB, a bm25 index can have {_MAX_TERMS:,} of "
                f"{_MAX_BYTES / 1e9:.1f} GB: divide the corpus into several"
            )
        if n_bytes > len(pool):
            pool = _grow(pool, n_bytes)
        if n_terms > len(ends):
            ends = _grow(ends, n_terms)
        has_new_slots = SLOTS_PER_TERM * n_terms > len(slots)
        if has_new_slots:
            slots = np.zeros(2 * SLOTS_PER_TERM * n_terms, np.uint32)
        self.terms = HashedTerms(pool, ends, slots)
        if has_new_slots:
            _fill_slots(HashedTerms(pool, ends[: self.n_terms], slots))


def _grow(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a copy with capacity for ``2 * n`` elements."""
    larger = np.empty(2 * n, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def find(table: HashedTerms, text: NDArray[np.uint8]) -> np.int64:
    """Return the number of the term with these bytes. For an absent term, return -1 minus the slot that it would take."""
    hashed = _FNV_OFFSET
    for byte in text:
        hashed = (hashed ^ np.uint64(byte)) * _FNV_PRIME
    hashed ^= hashed >> np.uint64(29)  # the low 32 bits select the slot: mix the high bits into them
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
    """Write the numbers of terms to ``numbers``; return the number of terms in the table.

    New terms are appended to the table, which holds ``n_terms`` terms before and must have room for all new terms.
    """
    start = np.int64(0)
    for i in range(len(ends)):
        offset, end = pool_end(table, n_terms), np.int64(ends[i])
        for j in range(end - start):  # a slice would be compiled with the texts of its errors
            table.pool[offset + j] = pool[start + j]
        numbers[i] = number_last(table, n_terms, offset + end - start)
        n_terms += int(numbers[i] == n_terms)
        start = end
    return n_terms


@kernel
def pool_end(table: HashedTerms, n_terms: int) -> np.int64:
    """Return the number of bytes of the first terms."""
    return np.int64(table.ends[n_terms - 1]) if n_terms > 0 else np.int64(0)


@kernel
def number_last(table: HashedTerms, n_terms: int, end: int) -> np.int64:
    """Return the number of the term in the pool after ``n_terms`` terms, up to ``end``; a new one is the next, and stays there."""
    number = find(table, table.pool[pool_end(table, n_terms) : end])
    if number < 0:
        table.ends[n_terms] = end
        table.slots[-1 - number] = n_terms + 1
        number = np.int64(n_terms)
    return np.int64(number)


@kernel
def _fill_slots(table: HashedTerms) -> None:
    """Insert the numbers of all terms into a table with free slots only."""
    start = np.int64(0)
    for number in range(len(table.ends)):
        end = np.int64(table.ends[number])
        table.slots[-1 - find(table, table.pool[start:end])] = number + 1
        start = end


@kernel
def find_all(table: HashedTerms, pool: NDArray[np.uint8], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers of terms, int64, shape (len(ends),). An absent term has -1."""
    numbers = np.empty(len(ends), dtype=np.int64)
    start = np.int64(0)
    for i in range(len(ends)):
        numbers[i] = max(np.int64(-1), find(table, pool[start : np.int64(ends[i])]))
        start = np.int64(ends[i])
    return numbers

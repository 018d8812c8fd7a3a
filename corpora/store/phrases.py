"""Phrases: the frequent strings of a corpus, of 1 to 16 bytes, found in a hash table, and texts written as their numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel

from .layout import MOST_PHRASES, Bytes

ANOTHER = -1
"""End of a passage whose frame has no phrases."""

_LONGEST = 16
_N_SLOTS = 1 << 18
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 divided by the golden ratio; its multiples spread well (Knuth)
_SECOND_PRIME = np.uint64(0xC2B2AE3D27D4EB4F)
_FREE_PAIR = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIR_BITS = 22
_MOST_PROBES = 64
_SHIFT = np.uint64(29)
_EIGHT = np.uint64(8)
_ONE = np.uint64(1)


class _Phrases(NamedTuple):
    """The phrases of a vocabulary, and a hash table that finds them.

    Attributes:
        words: uint64 (65536, 2), the bytes of each phrase, zeros at the end.
        lengths: uint8 (65536,), 0 for a number without a phrase.
        slots: int32, the number of a phrase, or -1.
        longest: uint8 (65536,), the length of the longest phrase that begins with two given bytes.
    """

    words: NDArray[np.uint64]
    lengths: NDArray[np.uint8]
    slots: NDArray[np.int32]
    longest: NDArray[np.uint8]


@kernel
def _first_slot(low: np.uint64, high: np.uint64, length: int) -> np.uint64:
    mixed = low * _PRIME ^ (high + np.uint64(length)) * _SECOND_PRIME
    mixed = (mixed ^ mixed >> _SHIFT) * _PRIME
    return mixed >> np.uint64(46)  # _N_SLOTS values


@kernel
def _find(phrases: _Phrases, low: np.uint64, high: np.uint64, length: int) -> int:
    """Return the number of a phrase, or -1."""
    slot = _first_slot(low, high, length)
    while phrases.slots[slot] >= 0:
        number = phrases.slots[slot]
        if phrases.lengths[number] == length and phrases.words[number, 0] == low and phrases.words[number, 1] == high:
            return int(number)
        slot = (slot + _ONE) & np.uint64(_N_SLOTS - 1)
    return -1


@kernel
def _insert(phrases: _Phrases, number: int) -> None:
    """Insert the phrase ``number`` into the hash table."""
    low, high, length = phrases.words[number, 0], phrases.words[number, 1], int(phrases.lengths[number])
    slot = _first_slot(low, high, length)
    while phrases.slots[slot] >= 0:
        slot = (slot + _ONE) & np.uint64(_N_SLOTS - 1)
    phrases.slots[slot] = number
    if length > 1:
        pair = np.int64(low & np.uint64(0xFFFF))
        phrases.longest[pair] = max(phrases.longest[pair], length)


@kernel
def _insert_all(phrases: _Phrases, n_phrases: int) -> None:
    """Insert all phrases into the hash table."""
    for number in range(n_phrases):
        _insert(phrases, number)


@kernel
def _cut(word: np.uint64, n_bytes: int) -> np.uint64:
    """Return the first bytes of a word, from none to all eight."""
    if n_bytes <= 0:
        return np.uint64(0)
    return word if n_bytes >= 8 else word & ((_ONE << (_EIGHT * np.uint64(n_bytes))) - _ONE)


@kernel
def _longest_phrase(phrases: _Phrases, text: Bytes, start: int, end: int) -> int:
    """Return the number of the longest phrase at ``start``."""
    low, high = text.words[start], text.words[start + 8]
    length = 1
    if end - start > 1:
        length = max(1, min(end - start, int(phrases.longest[text.shorts[start]])))
    while length > 1:
        number = _find(phrases, _cut(low, length), _cut(high, length - 8), length)
        if number >= 0:
            return int(number)
        length -= 1
    single: int = text.each[start]
    return single


@kernel
def train_phrases(phrases: _Phrases, text: Bytes, ends: NDArray[np.int64], n_frequent: int) -> int:
    """Add frequent phrases to a vocabulary that has the single bytes, and return the number of all phrases.

    Two adjacent phrases become one as soon as they have been seen together ``n_frequent`` times.

    Args:
        phrases: the vocabulary.
        text: the samples, one after the other, and at least 16 bytes more.
        ends: the end of each sample.
        n_frequent: the number of times.
    """
    pairs, counts = np.full(1 << _PAIR_BITS, _FREE_PAIR), np.zeros(1 << _PAIR_BITS, np.int32)
    n, start = 256, 0
    for end in ends:
        before = -1
        while start < end and n < MOST_PHRASES:
            number = _longest_phrase(phrases, text, start, end)
            length = int(phrases.lengths[number])
            if before >= 0 and phrases.lengths[before] + length <= _LONGEST and _count(pairs, counts, before, number) == n_frequent:
                first = start - int(phrases.lengths[before])
                whole = start + length - first
                low, high = _cut(text.words[first], whole), _cut(text.words[first + 8], whole - 8)
                if _find(phrases, low, high, whole) < 0:
                    phrases.words[n, 0], phrases.words[n, 1], phrases.lengths[n] = low, high, whole
                    _insert(phrases, n)
                    number = n
                    n += 1
            before = number
            start += length
        start = end
    return n


@kernel
def _count(pairs: NDArray[np.uint64], counts: NDArray[np.int32], first: int, second: int) -> int:
    """Count a pair of phrases, and return how often it has been seen; 0 if the table is too full."""
    key = np.uint64(first) << np.uint64(16) | np.uint64(second)
    slot = np.int64((key * _PRIME) >> np.uint64(64 - _PAIR_BITS))
    for _ in range(_MOST_PROBES):
        if pairs[slot] == key or pairs[slot] == _FREE_PAIR:
            pairs[slot] = key
            counts[slot] += 1
            return int(counts[slot])
        slot = (slot + 1) & ((1 << _PAIR_BITS) - 1)
    return 0


@kernel
def encode_phrases(
    phrases: _Phrases, text: Bytes, ends: NDArray[np.int64], numbers: NDArray[np.uint16], number_ends: NDArray[np.int64]
) -> None:
    """Write texts, one after the other, followed by at least 16 bytes, as numbers of phrases; ``number_ends`` has the end of each."""
    n, start = 0, 0
    for i in range(len(ends)):
        while start < ends[i]:
            number = _longest_phrase(phrases, text, start, ends[i])
            numbers[n] = number
            start += int(phrases.lengths[number])
            n += 1
        number_ends[i] = n


def index_phrases(words: NDArray[np.uint64], lengths: NDArray[np.uint8]) -> object:
    """Return the phrases with a hash table that finds them."""
    slots, longest = np.full(_N_SLOTS, -1, dtype=np.int32), np.zeros(1 << 16, dtype=np.uint8)
    phrases = _Phrases(words, lengths, slots, longest)
    _insert_all(phrases, np.count_nonzero(lengths))
    return phrases


@kernel
def decode_frames(  # noqa: PLR0913
    content: Bytes,
    frames: NDArray[np.int64],
    words: NDArray[np.uint64],
    lengths: NDArray[np.uint8],
    out: Bytes,
    fields: NDArray[np.int64],
) -> int:
    """Write the passages of frames one after the other, and return the number of their bytes.

    Args:
        content: the batches.
        frames: start and end of each frame, (n, 2).
        words: the phrases.
        lengths: their lengths.
        out: room for 16 bytes a number, and 16 more.
        fields: (n, 4): where the id, the title and the text start and where the text ends; the end is ANOTHER if there are no phrases.
    """
    position = 0
    for i in range(len(frames)):
        start, end = frames[i, 0], frames[i, 1]
        if content.shorts[start] >= MOST_PHRASES:
            fields[i, 3] = ANOTHER
        else:
            first = position
            for p in range(start, end, 2):
                number = content.shorts[p]
                out.words[position] = words[number, 0]
                out.words[position + 8] = words[number, 1]
                position += int(lengths[number])
            n_id, at = read_length(out.each, first, position)
            n_title, at = read_length(out.each, at, position)
            fields[i, 0], fields[i, 1], fields[i, 2], fields[i, 3] = at, at + n_id, at + n_id + n_title, position
    return position


@kernel
def read_length(out: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where the next begins."""
    value, shift = 0, 0
    while at < end:
        byte = int(out[at])
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            break
    return value, at

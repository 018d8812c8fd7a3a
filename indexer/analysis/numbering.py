"""Kernel that numbers the terms of texts for ``analyzer.TermNumbers``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis.dictionary import SLOTS_PER_TERM, HashedTerms, number_last, pool_end
from wikidx.indexer.analysis.porter import Units
from wikidx.indexer.analysis.terms import FIRST_NOT_ASCII, FIRST_OF_TWO_UNITS, HIGH_SURROGATES, LOW_SURROGATES, Rules, pack, write_term
from wikidx.indexer.analysis.tokens import MAX_TOKEN_UNITS, next_token

MAX_TERM_BYTES = 3 * MAX_TOKEN_UNITS
_STOPPED = -1

_N_RECENT = 1 << 15

_AFTER_SURROGATES = 0xE000
_FIRST_OF_THREE_BYTES = 0x800
_LEADING = 0xFF80  # shifted right by the number of further bytes of a code point: the highest bits of its first byte


class RecentTokens(NamedTuple):
    """Cache of tokens of up to 8 ASCII characters: the latest with hash p, packed into an integer, and its term's number, or _STOPPED."""

    tokens: NDArray[np.int64]
    numbers: NDArray[np.int32]


class Texts(NamedTuple):
    """The concatenated code points of texts, and the end of each; ``numbers`` and ``ends`` receive their terms, see ``number_terms``."""

    points: NDArray[np.uint32]
    bounds: NDArray[np.int64]
    numbers: NDArray[np.int32]
    ends: NDArray[np.int64]


def no_recent_tokens() -> RecentTokens:
    """Return an empty cache."""
    return RecentTokens(np.zeros(_N_RECENT, dtype=np.int64), np.zeros(_N_RECENT, dtype=np.int32))


@kernel
def number_terms(texts: Texts, rules: Rules, terms: HashedTerms, n_terms: int, recent: RecentTokens, state: NDArray[np.int64]) -> int:
    """Number the terms of texts until they end or the table is full; new terms get numbers in order of appearance.

    Args:
        texts: their ``numbers`` receive the concatenated term numbers of all texts, and are at least as long as ``points``; their ``ends``
            receive the position after each text's last number.
        rules: rules of the analysis.
        terms: the terms so far, with spare capacity.
        n_terms: their number.
        recent: cache of tokens.
        state: texts read, code points read, and numbers written, (3,); all 0 at first.

    Returns:
        The number of terms. Unless all texts are read, the table needs more room.
    """
    units = np.empty(MAX_TOKEN_UNITS, dtype=np.uint16)
    text, position, n = state
    while text < len(texts.ends):
        while position < texts.bounds[text] and _has_room(terms, n_terms):
            begin, position = next_token(texts.points, position, texts.bounds[text], rules.token)
            packed = pack(texts.points, begin, position)
            slot = _hash(packed) & (_N_RECENT - 1)
            if packed > 0 and recent.tokens[slot] == packed:
                number = np.int64(recent.numbers[slot])
            else:
                length = write_term(texts.points, begin, position, rules, units)
                number = np.int64(_STOPPED)
                if length > 0:
                    number = number_last(terms, n_terms, _write_utf8(units, length, terms.pool, pool_end(terms, n_terms)))
                    n_terms += int(number == n_terms)
                if packed > 0:
                    recent.tokens[slot] = packed
                    recent.numbers[slot] = number
            if number != _STOPPED:
                texts.numbers[n] = number
                n += 1
        if position < texts.bounds[text]:
            break
        texts.ends[text] = n
        text += 1
    state[0], state[1], state[2] = text, position, n
    return n_terms


@kernel
def _has_room(terms: HashedTerms, n_terms: int) -> bool:
    has_bytes = pool_end(terms, n_terms) + MAX_TERM_BYTES <= len(terms.pool)
    return bool(has_bytes and n_terms < len(terms.ends) and SLOTS_PER_TERM * (n_terms + 1) <= len(terms.slots))


@kernel
def _hash(packed: np.int64) -> np.int64:
    """Return a 31-bit hash of a packed token."""
    mixed = ((packed ^ packed >> 32) & 0xFFFFFFFF) * 0x61C88647
    return (mixed ^ mixed >> 32) & 0x7FFFFFFF


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
        if HIGH_SURROGATES <= point < _AFTER_SURROGATES:
            point = FIRST_OF_TWO_UNITS + (point - HIGH_SURROGATES << 10) + (np.int64(units[i]) - LOW_SURROGATES)
            i += 1
        n_more = 1 + int(point >= _FIRST_OF_THREE_BYTES) + int(point >= FIRST_OF_TWO_UNITS)
        pool[position] = (_LEADING >> n_more & 0xFF) | point >> 6 * n_more
        for k in range(1, n_more + 1):
            pool[position + k] = 0x80 | point >> 6 * (n_more - k) & 0x3F
        position += 1 + n_more
    return position

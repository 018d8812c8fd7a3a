"""Lucene's English token filters: they remove a possessive 's, convert to lower case, drop stop words, and stem."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis import characters
from wikidx.indexer.analysis.porter import Units, stem
from wikidx.indexer.analysis.tokens import TokenRules, token_rules

# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
_LONGEST_PACKED = 8

FIRST_NOT_ASCII = 0x80
FIRST_OF_TWO_UNITS = 0x10000  # in UTF-16
HIGH_SURROGATES, LOW_SURROGATES = 0xD800, 0xDC00

_S, _CAPITAL_S = b"sS"
_APOSTROPHE, _RIGHT_QUOTE, _WIDE_APOSTROPHE = 0x27, 0x2019, 0xFF07


class Rules(NamedTuple):
    """Tables of the analysis."""

    token: TokenRules
    lower: NDArray[np.uint32]  # by code point; later code points are unchanged
    stop_words: NDArray[np.int64]  # see ``pack``; ascending


def read_rules() -> Rules:
    """Load and compile the tables of the analysis, in about ten milliseconds."""
    token = token_rules()
    stop_words = np.array(sorted(int.from_bytes(word.encode("ascii")) for word in STOP_WORDS))
    return Rules(token, characters.lower_case_table(token.classes), stop_words)


@kernel
def write_term(points: NDArray[np.uint32], begin: int, end: int, rules: Rules, units: Units) -> int:
    """Write the term of the token ``points[begin:end]`` to ``units``; return its length, or 0 for a stop word or an empty token."""
    n: int = _write_lower(points, begin, _end_without_possessive(points, begin, end), rules.lower, units)
    return 0 if _is_stop_word(units, n, rules.stop_words) else int(stem(units, n))


@kernel
def _end_without_possessive(points: NDArray[np.uint32], begin: int, end: int) -> int:
    """Return the end of the token without a final 's."""
    if end - begin < 2 or points[end - 1] not in (_S, _CAPITAL_S):
        return end
    return end - 2 if points[end - 2] in (_APOSTROPHE, _RIGHT_QUOTE, _WIDE_APOSTROPHE) else end


@kernel
def _write_lower(points: NDArray[np.uint32], begin: int, end: int, lower: NDArray[np.uint32], units: Units) -> int:
    """Write the lower case of a token as UTF-16 and return its length."""
    n = 0
    for i in range(begin, end):
        point = np.int64(points[i])
        if point < len(lower):
            point = np.int64(lower[point])
        if point < FIRST_OF_TWO_UNITS:
            units[n] = point
            n += 1
        else:
            units[n] = HIGH_SURROGATES + (point - FIRST_OF_TWO_UNITS >> 10)
            units[n + 1] = LOW_SURROGATES + (point & 0x3FF)
            n += 2
    return n


@kernel
def _is_stop_word(units: Units, n: int, stop_words: NDArray[np.int64]) -> bool:
    packed, first, last = pack(units, 0, n), 0, len(stop_words) - 1
    while first < last:
        middle = (first + last) // 2
        first, last = (middle + 1, last) if stop_words[middle] < packed else (first, middle)
    return bool(stop_words[first] == packed)


@kernel
def pack(characters: NDArray[np.uint16] | NDArray[np.uint32], begin: int, end: int) -> np.int64:
    """Return up to 8 ASCII characters as an integer; 0 for any others."""
    packed = np.int64(0)
    if end - begin > _LONGEST_PACKED:
        return packed
    for i in range(begin, end):
        if characters[i] >= FIRST_NOT_ASCII:
            return np.int64(0)
        packed = packed << 8 | np.int64(characters[i])
    return packed

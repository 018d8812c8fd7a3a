"""Texts as rows of tokens, cut as DPR's SimpleTokenizer cuts them (facebookresearch/DPR, dpr/utils/tokenizers.py), many at once.

A text is NFD-normalised; tokens are runs of letters, digits and marks, and every other visible character by itself; each is lower-cased on
its own. A row of tokens is a text with a space before and after each token. No token holds a space, so tokens that stand in a row in a text
are a substring there.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.errors import MissingExtraError

try:
    import regex
except ImportError as error:
    raise MissingExtraError("has_answer", "eval") from error

_SEPARATOR, _WORD, _SYMBOL = 0, 1, 2  # what a character is: between tokens, part of one, or one
_SPACE = 32
_SIGMA = "\u03a3"  # Σ becomes ς at the end of a token: the one lower case that depends on what stands around
_AT_ONCE = 256  # texts; their characters as arrays stay in the caches

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


class _Characters(NamedTuple):
    """Of each code point, what it is and its lower case."""

    kinds: NDArray[np.uint8]
    lower: NDArray[np.uint32]


def token_row(text: str) -> str:
    """Return the tokens of a text with a space before and after each; a single space if there are none."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    return " " + "".join(f"{token.lower()} " for token in tokens)


def token_rows(texts: Sequence[str]) -> list[str]:
    """Return ``token_row`` of each text, many times as fast."""
    return [row for start in range(0, len(texts), _AT_ONCE) for row in _rows(texts[start : start + _AT_ONCE])]


def _rows(texts: Sequence[str]) -> list[str]:
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    points = np.frombuffer("\n".join([*decomposed, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(text) + 1 for text in decomposed]) - 1  # of each text the place of the line end behind it
    characters = _characters()
    kinds = characters.kinds.take(points)
    is_word = kinds == _WORD
    begins = kinds == _SYMBOL  # a token, which a space goes before
    begins[0] |= is_word[0]
    begins[1:] |= is_word[1:] & ~is_word[:-1]
    n_written = (kinds != _SEPARATOR).view(np.int8) + begins.view(np.int8)
    n_written[ends] = 1  # the space behind the last token
    written = n_written.cumsum(dtype=np.int32)
    shown = np.flatnonzero(kinds)
    row_points = np.full(written[-1], _SPACE, np.uint32)
    row_points[written[shown] - 1] = characters.lower.take(points[shown])
    whole = row_points.tobytes().decode("utf-32-le")  # without surrogates: these separate
    bounds = [0, *written[ends].tolist()]
    return [
        token_row(text) if _SIGMA in text else whole[begin:end]
        for text, begin, end in zip(decomposed, bounds[:-1], bounds[1:], strict=True)
    ]


@functools.cache
def _characters() -> _Characters:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.full(len(every), _SEPARATOR, np.uint8)
    for found in regex.finditer(r"[\p{L}\p{N}\p{M}]+", every):
        kinds[found.start() : found.end()] = _WORD
    for found in regex.finditer(r"[^\p{L}\p{N}\p{M}\p{Z}\p{C}]+", every):
        kinds[found.start() : found.end()] = _SYMBOL
    dotted = "\u0130"  # İ, which is two characters when lower-cased, and never there after NFD
    lower = every.replace(_SIGMA, " ").replace(dotted, " ").lower()
    return _Characters(kinds, np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), np.uint32))

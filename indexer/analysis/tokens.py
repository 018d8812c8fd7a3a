"""Tokenization of texts by longest match of a grammar, equal to Lucene's StandardTokenizer.

The grammar of words is a pattern over the codes of ``characters.CLASSES``. It follows the word boundary rules (WB) of Unicode Standard
Annex #29. A word is a segment with a letter, a digit, an ideograph or a pictograph. Lucene differs from the annex in three ways:

- A Hebrew letter before a final single quote, or beside a double quote, is not also connected by a period, a colon or another such quote.
- A run of characters of South-East Asian scripts is one word.
- Extending characters after a pictograph follow rules of their own (``_EMOJI``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis import automaton, characters

MAX_TOKEN_UNITS = 255  # maximum length of a token in UTF-16 units, Lucene's default; longer words are split

_DEAD, _START = automaton.DEAD, automaton.START
_LAST_OF_ONE_UNIT = 0xFFFF

# WB4: extending characters belong to the preceding character.
_EXTENDING = "[xdzmtso]*"

# WB5-7, 9, 10: letters and digits form a word. One . : ' between two letters belongs to the word, as in can't and example.com.
# WB8, 11, 12: one . , ; ' between two digits belongs to the word, as in 1,000.5.
# WB7a-c: a single quote after a Hebrew letter, or a double quote between two Hebrew letters, belongs to the word.
# WB13: a run of Katakana is a word. WB13a, b: underscores and similar characters connect words into one.
_RUN = """(k+|([ahl]([:.'][ahl])*|n([,.']n)*|h'|h"h)+)"""
_WORD = f"_*{_RUN}(_+{_RUN})*_*"

_SOUTH_EAST_ASIAN = "[cd]+"  # a run is one word: splitting it would need a dictionary
_IDEOGRAPH = "i"  # WB999: each ideograph is a word
_FLAG = "rr"  # WB15, 16: two regional indicators form a flag

# WB3c: joiners connect pictographs, and may precede the first. A pictograph may have one emoji style, at its end, and no text style.
_DECORATION = "[xdzmo]*"
_PICTOGRAPH = f"[pl]{_DECORATION}s?"
_EMOJI = f"(z*{_PICTOGRAPH}|m{_DECORATION})(z+{_PICTOGRAPH}|zm{_DECORATION})*"
_KEYCAP = f"#{_DECORATION}s?o{_DECORATION}"


def _allow_extending(pattern: str) -> str:
    """Allow extending characters after each character of the pattern."""
    return re.sub(r"\[[^]]*\]|[^()|*+?]", rf"(\g<0>{_EXTENDING})", pattern)


PATTERN = "|".join([_allow_extending(f"{_WORD}|{_SOUTH_EAST_ASIAN}|{_IDEOGRAPH}|{_FLAG}"), _EMOJI, _KEYCAP])


class TokenRules(NamedTuple):
    """Tables of the tokenizer."""

    classes: NDArray[np.uint8]  # class of each code point
    moves: NDArray[np.uint8]  # (states, classes)
    accepting: NDArray[np.bool_]  # (states,)


def token_rules() -> TokenRules:
    """Load the character classes and compile the grammar, in a few milliseconds."""
    words = automaton.compile_pattern(PATTERN, characters.CLASSES.values())
    return TokenRules(characters.class_table(), words.moves, words.accepting)


@kernel
def next_token(points: NDArray[np.uint32], start: int, stop: int, rules: TokenRules) -> tuple[int, int]:
    """Return the start and end of the first token of ``points[start:stop]``; (stop, stop) if there is none.

    Code points where no match can start are skipped.
    """
    for begin in range(start, stop):
        end = begin
        state = _START
        units = 0
        for i in range(begin, stop):
            state = rules.moves[state, rules.classes[points[i]]]
            units += 2 if points[i] > _LAST_OF_ONE_UNIT else 1
            if state == _DEAD or units > MAX_TOKEN_UNITS:
                break
            if rules.accepting[state]:
                end = i + 1
        if end > begin:
            return begin, end
    return stop, stop


@kernel
def token_bounds(points: NDArray[np.uint32], rules: TokenRules) -> NDArray[np.int64]:
    """Return the start and end of each token of ``points``, int64, shape (n, 2)."""
    bounds = np.empty((len(points), 2), dtype=np.int64)
    n = 0
    begin, end = next_token(points, 0, len(points), rules)
    while end > begin:
        bounds[n, 0], bounds[n, 1] = begin, end
        n += 1
        begin, end = next_token(points, end, len(points), rules)
    return bounds[:n]

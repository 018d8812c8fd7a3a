"""Tokenization of texts by longest match of the grammar, equal to Lucene's StandardTokenizer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.analysis import automaton, characters, grammar
from wikidx.indexer.machine.compiled import kernel

MAX_TOKEN_UNITS = 255  # maximum length of a token in UTF-16 units, Lucene's default; longer words are split

_DEAD, _START = automaton.DEAD, automaton.START
_LAST_OF_ONE_UNIT = 0xFFFF


class TokenRules(NamedTuple):
    """Tables of the tokenizer."""

    classes: NDArray[np.uint8]  # class of each code point
    moves: NDArray[np.uint8]  # (states, classes)
    accepting: NDArray[np.bool_]  # (states,)


def token_rules() -> TokenRules:
    """Load the character classes and compile the grammar, in a few milliseconds."""
    words = automaton.compile_pattern(grammar.PATTERN, characters.CLASSES.values())
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

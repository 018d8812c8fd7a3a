"""Compilation of patterns over character classes into the tables of deterministic automata.

A pattern is a regular expression with ``|``, ``*``, ``+``, ``?``, ``( )`` and ``[ ]``. Every other character is the code of a class.
Each occurrence of a code, or of a bracketed set of codes, is a *position* of the pattern. A state of the automaton is a set of positions:
those that the latest character can have matched (Glushkov, The abstract theory of automata, 1961).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DEAD, START = 0, 1  # states


class Automaton(NamedTuple):
    """Transition table. ``moves[state, code number]`` is the next state, or DEAD; a match may end in an accepting state."""

    moves: NDArray[np.uint8]  # (states, codes)
    accepting: NDArray[np.bool_]  # (states,)


class _Subpattern(NamedTuple):
    """A part of a pattern: first and last positions of its matches. An optional part matches the empty string."""

    first: frozenset[int]
    last: frozenset[int]
    optional: bool


_TOKEN = re.compile(r"(\[[^]]*\]|.)([*+?]*)")  # a code, several in brackets, or one of ( ) |, and signs of repetition
_NOTHING = _Subpattern(frozenset(), frozenset(), True)


class _Pattern:
    """A parsed pattern. ``codes[p]`` are the codes of position p; ``after[p]`` are the positions that can follow position p."""

    def __init__(self, pattern: str) -> None:
        self.codes: list[str] = []
        self.after: list[set[int]] = []
        self.whole, _ = self._parse((match[1], match[2]) for match in _TOKEN.finditer(pattern))

    def _parse(self, tokens: Iterator[tuple[str, str]]) -> tuple[_Subpattern, str]:
        """Return the subpattern up to the bracket that closes it, and the signs of repetition behind that."""
        choices, signs = [_NOTHING], ""
        for token, signs in tokens:
            if token == ")":
                break
            if token == "|":
                choices.append(_NOTHING)
            else:
                part, part_signs = self._parse(tokens) if token == "(" else (self._add(token), signs)
                choices[-1] = self._join(choices[-1], self._repeat(part, part_signs))
        firsts, lasts, optional = zip(*choices, strict=True)
        return _Subpattern(frozenset().union(*firsts), frozenset().union(*lasts), any(optional)), signs

    def _add(self, codes: str) -> _Subpattern:
        """Return the subpattern of a new position with a code, or with one of several in brackets."""
        position = frozenset([len(self.codes)])
        self.codes.append(codes.strip("[]"))
        self.after.append(set())
        return _Subpattern(position, position, False)

    def _repeat(self, part: _Subpattern, signs: str) -> _Subpattern:
        if set(signs) & {"*", "+"}:
            self._follow(part.last, part.first)
        return part._replace(optional=part.optional or bool(set(signs) & {"*", "?"}))

    def _join(self, before: _Subpattern, part: _Subpattern) -> _Subpattern:
        self._follow(before.last, part.first)
        return _Subpattern(
            before.first | part.first if before.optional else before.first,
            before.last | part.last if part.optional else part.last,
            before.optional and part.optional,
        )

    def _follow(self, first: Iterable[int], following: Iterable[int]) -> None:
        for position in first:
            self.after[position].update(following)


def compile_pattern(pattern: str, codes: Iterable[str]) -> Automaton:
    """Return the automaton of a pattern; code number i is the i-th of ``codes``."""
    parsed = _Pattern(pattern)
    all_codes = list(codes)
    states: dict[frozenset[int] | None, int] = {frozenset(): DEAD, None: START}  # None: nothing has been matched yet
    moves = list[list[int]]()
    for positions in (pending := list(states)):
        can_follow = parsed.whole.first if positions is None else {p for position in positions for p in parsed.after[position]}
        moves.append([])
        for code in all_codes:
            target = frozenset(position for position in can_follow if code in parsed.codes[position])
            if target not in states:
                states[target] = len(states)
                pending.append(target)
            moves[-1].append(states[target])
    accepting = [parsed.whole.optional if positions is None else bool(positions & parsed.whole.last) for positions in states]
    return Automaton(np.array(moves, dtype=np.uint8), np.array(accepting))

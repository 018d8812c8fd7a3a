"""Compilation of patterns over character classes into the tables of deterministic automata.

A pattern is a regular expression with ``|``, ``*``, ``+``, ``?``, ``( )`` and ``[ ]``. Every other character is the code of a class.
Each occurrence of a code, or of a bracketed set of codes, is a *position* of the pattern. A state of the automaton is a set of positions:
those that the latest character can have matched (Glushkov, The abstract theory of automata, 1961).
"""

from __future__ import annotations

from collections.abc import Iterable
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


_NOTHING = _Subpattern(frozenset(), frozenset(), True)


class _Pattern:
    """A parsed pattern. ``codes[p]`` are the codes of position p; ``after[p]`` are the positions that can follow position p."""

    def __init__(self, pattern: str) -> None:
        self._rest = list(reversed(pattern))
        self.codes: list[str] = []
        self.after: list[set[int]] = []
        self.whole = self._parse_choice()
        if self._rest:
            raise ValueError(f"a bracket too many in {pattern!r}")

    def _next_is(self, characters: str) -> bool:
        return bool(self._rest) and self._rest[-1] in characters

    def _parse_choice(self) -> _Subpattern:
        subpattern = self._parse_sequence()
        while self._next_is("|"):
            self._rest.pop()
            other = self._parse_sequence()
            subpattern = _Subpattern(subpattern.first | other.first, subpattern.last | other.last, subpattern.optional or other.optional)
        return subpattern

    def _parse_sequence(self) -> _Subpattern:
        subpattern = _NOTHING
        while self._rest and not self._next_is("|)"):
            following = self._parse_repetition()
            self._follow(subpattern.last, following.first)
            subpattern = _Subpattern(
                subpattern.first | following.first if subpattern.optional else subpattern.first,
                subpattern.last | following.last if following.optional else following.last,
                subpattern.optional and following.optional,
            )
        return subpattern

    def _parse_repetition(self) -> _Subpattern:
        subpattern = self._parse_atom()
        while self._next_is("*+?"):
            sign = self._rest.pop()
            if sign in "*+":
                self._follow(subpattern.last, subpattern.first)
            subpattern = subpattern._replace(optional=subpattern.optional or sign in "*?")
        return subpattern

    def _parse_atom(self) -> _Subpattern:
        code = self._rest.pop()
        if code == "(":
            subpattern = self._parse_choice()
            self._rest.pop()
            return subpattern
        if code == "[":
            code = "".join(iter(self._rest.pop, "]"))
        position = len(self.codes)
        self.codes.append(code)
        self.after.append(set())
        return _Subpattern(frozenset([position]), frozenset([position]), False)

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

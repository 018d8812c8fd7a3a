"""Compile a pattern over character classes to a deterministic automaton, as tables for a kernel.

Patterns are regular expressions with ``|``, ``*``, ``+``, ``?``, ``( )`` and ``[ ]`` over one-letter codes. Each occurrence of a code in
the pattern is a *position*. The pattern determines the positions that can come first, last, and after each other; a state of the automaton
is a set of positions that a match can have reached (Glushkov, The abstract theory of automata, 1961).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DEAD, START = 0, 1  # states


class Automaton(NamedTuple):
    """Transition table: ``moves[state, code]`` is the next state, or DEAD; a match may end in a state that is ``accepting``."""

    moves: NDArray[np.uint8]  # (states, codes)
    accepting: NDArray[np.bool_]  # (states,)


class _Part(NamedTuple):
    """A part of a pattern: the possible first and last positions of a match, and whether it matches the empty string."""

    first: frozenset[int]
    last: frozenset[int]
    optional: bool


_NOTHING = _Part(frozenset(), frozenset(), True)


class _Pattern:
    """A parsed pattern. ``codes[p]`` are the codes of position p, ``after[p]`` the positions that can follow it."""

    def __init__(self, pattern: str) -> None:
        self._rest = list(reversed(pattern))
        self.codes: list[str] = []
        self.after: list[set[int]] = []
        self.whole = self._choice()
        if self._rest:
            raise ValueError(f"a bracket too many in {pattern!r}")

    def _next_is(self, characters: str) -> bool:
        return bool(self._rest) and self._rest[-1] in characters

    def _choice(self) -> _Part:
        part = self._sequence()
        while self._next_is("|"):
            self._rest.pop()
            other = self._sequence()
            part = _Part(part.first | other.first, part.last | other.last, part.optional or other.optional)
        return part

    def _sequence(self) -> _Part:
        part = _NOTHING
        while self._rest and not self._next_is("|)"):
            then = self._repeated()
            self._follow(part.last, then.first)
            part = _Part(
                part.first | then.first if part.optional else part.first,
                part.last | then.last if then.optional else then.last,
                part.optional and then.optional,
            )
        return part

    def _repeated(self) -> _Part:
        part = self._single()
        while self._next_is("*+?"):
            sign = self._rest.pop()
            if sign in "*+":
                self._follow(part.last, part.first)
            part = part._replace(optional=part.optional or sign in "*?")
        return part

    def _single(self) -> _Part:
        code = self._rest.pop()
        if code == "(":
            part = self._choice()
            self._rest.pop()
            return part
        if code == "[":
            code = "".join(iter(self._rest.pop, "]"))
        position = len(self.codes)
        self.codes.append(code)
        self.after.append(set())
        return _Part(frozenset([position]), frozenset([position]), False)

    def _follow(self, before: Iterable[int], then: Iterable[int]) -> None:
        for position in before:
            self.after[position].update(then)


def compile_pattern(pattern: str, codes: Iterable[str]) -> Automaton:
    """Return the automaton of a pattern; ``codes`` are its codes in the order of their numbers."""
    read = _Pattern(pattern)
    in_order = list(codes)
    states: dict[frozenset[int] | None, int] = {frozenset(): DEAD, None: START}  # None: nothing has been matched yet
    moves = list[list[int]]()
    for arrived in (todo := list(states)):
        can_follow = read.whole.first if arrived is None else {p for position in arrived for p in read.after[position]}
        moves.append([])
        for code in in_order:
            then = frozenset(position for position in can_follow if code in read.codes[position])
            if then not in states:
                states[then] = len(states)
                todo.append(then)
            moves[-1].append(states[then])
    accepting = [read.whole.optional if arrived is None else bool(arrived & read.whole.last) for arrived in states]
    return Automaton(np.array(moves, dtype=np.uint8), np.array(accepting))

"""Generated texts that repeat themselves until the token limit.

Greedy decoding of small models often ends in such a loop. The loop is cut off before the text becomes an answer or a search query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .base import Gen

REPEATS = "the text repeats itself up to the token limit: it is cut after the first occurrence"

_MIN_TIMES = 3
_MIN_CHARACTERS = 24  # minimum length of all repetitions together
_MAX_CHARACTERS = 10_000  # length of the end of a text that is searched
_ENDLESS_TIMES = 4
_ENDLESS_TOKENS = 128  # number of repeated tokens after which a greedy text is not continued
_ENDLESS_CHARACTERS = 512  # about as many tokens, where only the text is known
CHECKED_TOKENS = 32
"""Number of tokens between two checks of a greedy text."""


def cut_loop(gen: Gen) -> Gen:
    """Cut off the repetitions at the end of a text that reached the token limit; other texts are returned unchanged."""
    first = _first_time(gen.text, _MIN_TIMES, _MIN_CHARACTERS) if gen.finish == "length" else None
    if first is None:
        return gen
    text = gen.text[: first.stop] + _rest_of_word(gen.text, first)
    return replace(gen.part(0, len(text.rstrip())), degraded=(*gen.degraded, REPEATS))


def is_endless(tokens: Sequence[int]) -> bool:
    """Return whether the tokens of a greedy text end in at least four repetitions of 128 tokens together; False between the checks."""
    return len(tokens) % CHECKED_TOKENS == 0 and _first_time(tokens, _ENDLESS_TIMES, _ENDLESS_TOKENS) is not None


def is_endless_text(text: str) -> bool:
    """Return whether a greedy text ends in at least four repetitions of 512 characters together."""
    return _first_time(text, _ENDLESS_TIMES, _ENDLESS_CHARACTERS) is not None


def _rest_of_word(text: str, first: slice) -> str:
    """Return the rest of the word that the end of the first time divides; empty if the repetition has no other words."""
    rest = re.compile(r"(?<=\w)\w*").match(text, first.stop)
    return rest[0] if rest and len(rest[0]) < first.stop - first.start else ""


def _first_time(text: Sequence[object], min_times: int, min_length: int) -> slice | None:
    """Return the place of the first of the repetitions that end a text, the last of which may be incomplete; None if it ends otherwise.

    Of several repetitions the one with the shortest unit counts.
    """
    matches = _prefix_matches(text[: -_MAX_CHARACTERS - 1 : -1])
    for period in range(1, len(matches) // min_times + 1):
        length = period + (matches[period] if period < len(matches) else 0)
        if length >= max(min_times * period, min_length):
            return slice(len(text) - length, len(text) - length + period)
    return None


def _prefix_matches(text: Sequence[object]) -> list[int]:
    """Return, for each offset, the number of items from there that equal the start of the text (the Z function)."""
    matches = [0] * len(text)
    start = end = 0
    for offset in range(1, len(text)):
        n = min(end - offset, matches[offset - start]) if offset < end else 0
        while offset + n < len(text) and text[n] == text[offset + n]:
            n += 1
        matches[offset] = n
        if offset + n > end:
            start, end = offset, offset + n
    return matches

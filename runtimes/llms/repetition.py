"""Generated texts that repeat themselves until the token limit.

Greedy decoding of small models often ends in such a loop. The loop is cut off before the text becomes an answer or a search query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .base import Gen

REPEATS = "the text repeats itself up to the token limit: it is cut after the first time"

_MIN_TIMES = 3
_MIN_CHARACTERS = 24  # minimum length of all repetitions together
_MAX_CHARACTERS = 10_000  # length of the end of a text that is searched


def cut_loop(gen: Gen) -> Gen:
    """Cut off the repetitions at the end of a text that reached the token limit; other texts are returned unchanged."""
    end = _end_of_first(gen.text) if gen.finish == "length" else None
    return gen if end is None else replace(gen, text=gen.text[:end].rstrip(), degraded=(*gen.degraded, REPEATS))


def _end_of_first(text: str) -> int | None:
    """Return the offset after the first of at least three repetitions that end a text, the last of which may be incomplete; else None.

    Of several repetitions the one with the shortest unit counts.
    """
    matches = _prefix_matches(text[: -_MAX_CHARACTERS - 1 : -1])
    for period in range(1, len(matches) // _MIN_TIMES + 1):
        length = period + matches[period] if period < len(matches) else 0
        if length >= max(_MIN_TIMES * period, _MIN_CHARACTERS):
            return len(text) - length + period
    return None


def _prefix_matches(text: Sequence[str]) -> list[int]:
    """Return, for each offset, the number of characters from there that equal the start of the text (the Z function)."""
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

"""Clean-up of texts sent to and received from models, and the words of yes/no questions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from .base import YesNo

BY_WORD = "no logprobs: yes/no is the first word generated, scored 1 or 0"
NO_TEMPLATE = "no chat template: the turns are one text"
FREE_TEXT = "no structured output: the text is free"
NO_THINKING = "the model's thinking is left out: it costs tokens, and logprobs include it"


def whole_characters(text: str) -> str:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut_at(text: str, stop: Iterable[str]) -> tuple[str, bool]:
    """Return the text before the first stop text, and whether there is one."""
    ends = [end for mark in stop if (end := text.find(mark)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def without_thinking(text: str) -> tuple[str, bool]:
    """Return a text without a leading ``<think>…</think>``, whose beginning may stand in the prompt, and whether it had one."""
    before, end, after = text.partition("</think>")
    is_thought = before.lstrip().startswith("<think>") or (end and "<think>" not in before)
    return (after.lstrip(), True) if is_thought else (text, False)


def variants(words: Iterable[str]) -> frozenset[str]:
    """Return each word as given, capitalised and in capitals, each with and without a leading space."""
    written = {form for word in words for form in (word, word.capitalize(), word.upper())}
    return frozenset(written | {f" {form}" for form in written})


def by_likeliest(
    likeliest: Sequence[tuple[str, float]], positive: Sequence[str], negative: Sequence[str], degraded: tuple[str, ...]
) -> YesNo:
    """Sum the probabilities of each side's words over the likeliest tokens, given as (token, log-probability)."""
    sides = (variants(positive), variants(negative))
    p_positive, p_negative = (math.fsum(math.exp(logprob) for token, logprob in likeliest if token in side) for side in sides)
    return YesNo(p_positive=p_positive, p_negative=p_negative, degraded=degraded)


def by_word(text: str, positive: Sequence[str], negative: Sequence[str], *, degraded: tuple[str, ...] = (BY_WORD,)) -> YesNo:
    """Give the side of a text's first word probability 1; neither side if it is another word."""
    found = re.search(r"\w+", text)
    word = found[0].casefold() if found else ""
    sides = (float(word in {w.casefold() for w in side}) for side in (positive, negative))
    return YesNo(p_positive=next(sides), p_negative=next(sides), degraded=degraded)

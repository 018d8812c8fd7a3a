"""Clean-up of texts for and from models, and probabilities of yes/no answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from .base import YesNo

BY_WORD = "no logprobs: yes/no is the first word generated, scored 1 or 0"
NO_TEMPLATE = "no chat template: the turns are one text"
FREE_TEXT = "no structured output: the text is free"
NO_THINKING = "the model's thinking is left out: it costs tokens, and logprobs include it"


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can express but UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut_at_stop(text: str, stop: Iterable[str]) -> tuple[str, bool]:
    """Return the part of a text before the first stop text, and whether there is a stop text."""
    ends = [end for mark in stop if (end := text.find(mark)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def strip_thinking(text: str) -> tuple[str, bool]:
    """Return a text without a leading ``<think>…</think>``, and whether there was one. The opening tag may be missing."""
    before, end, after = text.partition("</think>")
    is_thought = before.lstrip().startswith("<think>") or (end and "<think>" not in before)
    return (after.lstrip(), True) if is_thought else (text, False)


def word_variants(words: Iterable[str]) -> frozenset[str]:
    """Return the variants of each word: as given, capitalised and in capitals, with and without a leading space."""
    written = {form for word in words for form in (word, word.capitalize(), word.upper())}
    return frozenset(written | {f" {form}" for form in written})


def yes_no_from_tokens(
    likeliest: Sequence[tuple[str, float]], positive: Sequence[str], negative: Sequence[str], degraded: tuple[str, ...]
) -> YesNo:
    """Sum the probabilities of each answer's word variants over ``likeliest``, pairs of token and log-probability."""
    sides = (word_variants(positive), word_variants(negative))
    p_positive, p_negative = (math.fsum(math.exp(logprob) for token, logprob in likeliest if token in side) for side in sides)
    return YesNo(p_positive=p_positive, p_negative=p_negative, degraded=degraded)


def yes_no_from_word(text: str, positive: Sequence[str], negative: Sequence[str], *, degraded: tuple[str, ...] = (BY_WORD,)) -> YesNo:
    """Give each answer probability 1 if the first word of the text is one of the answer's words, else 0."""
    match = re.search(r"\w+", text)
    word = match[0].casefold() if match else ""
    sides = (float(word in {w.casefold() for w in side}) for side in (positive, negative))
    return YesNo(p_positive=next(sides), p_negative=next(sides), degraded=degraded)

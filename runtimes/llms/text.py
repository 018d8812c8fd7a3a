"""Clean-up of texts for and from models, and probabilities of yes/no answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .base import YesNo

BY_WORD = "no logprobs: the first generated word decides yes or no, with probability 1 or 0"
NO_TEMPLATE = "no chat template: the turns are joined into one text"
NO_SINGLE_TOKEN = "yes or no has no word of one token: its probability is 0"
NO_PROMPT_LOGPROBS = "no prompt logprobs: the NLL of a given text is unknown"
FREE_TEXT = "no structured output: the text is unconstrained"

NO_SCORES = "writes texts, and scores none: give this role an encoder or a classifier, as by --llm {role}=hf:FOLDER"

NO_CONTROL = "gives no log-probabilities of control tokens, by which this method decides: use hf: or an endpoint with logprobs"
NO_MIX = "gives no log-probabilities of next tokens, which this method mixes: use hf:, llamacpp: or an endpoint with logprobs"

LOW_MASS = 0.5
"""Minimum mean probability of the two answers together; below it, scores of yes/no questions mean little."""

MAX_BLANKS = 2
"""Maximum number of white-space tokens before the answer to a yes/no question."""

_SPACE_MARKS = "▁ĠĊ"  # of SentencePiece and of byte-level vocabularies


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can express but UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut_at_stop(text: str, stop: Iterable[str]) -> tuple[str, bool]:
    """Return the part of a text before the first stop text, and whether there is a stop text."""
    ends = [end for mark in stop if (end := text.find(mark)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def answer_pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for tokens that begin an answer: white space, one of the words in any case, and no further letter or digit."""
    return re.compile(rf"[\s{_SPACE_MARKS}]*(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)


def is_blank(token: str) -> bool:
    """Return whether a token consists of white space, written out or as the marks of a vocabulary."""
    return bool(token) and not token.strip(f" \t\r\n{_SPACE_MARKS}")


class NextToken(NamedTuple):
    """A position of a generated text.

    Attributes:
        generated: the generated token and its log-probability; None: unknown.
        likeliest: tokens that were possible there, with their log-probabilities.
    """

    generated: tuple[str, float] | None
    likeliest: Sequence[tuple[str, float]]


def yes_no_from_tokens(
    positions: Iterable[NextToken], positive: Sequence[str], negative: Sequence[str], degraded: tuple[str, ...]
) -> YesNo:
    """Sum the probabilities of the tokens that begin each answer, at the first position and after generated white space."""
    patterns, sums, p_reached = [answer_pattern(words) for words in (positive, negative)], [0.0, 0.0], 1.0
    for position in positions:
        for side, pattern in enumerate(patterns):
            sums[side] += p_reached * math.fsum(math.exp(logprob) for token, logprob in position.likeliest if pattern.match(token))
        if position.generated is None or not is_blank(position.generated[0]):
            break
        p_reached *= math.exp(position.generated[1])
    return YesNo(p_positive=sums[0], p_negative=sums[1], degraded=degraded)


def yes_no_from_word(
    text: str,
    positive: Sequence[str],
    negative: Sequence[str],
    *,
    degraded: tuple[str, ...] = (BY_WORD,),
) -> YesNo:
    """Give each answer probability 1 if the first word of the text is one of the answer's words, else 0."""
    match = re.search(r"\w+", text)
    word = match[0].casefold() if match else ""
    sides = (float(word in {w.casefold() for w in side}) for side in (positive, negative))
    return YesNo(p_positive=next(sides), p_negative=next(sides), degraded=degraded)

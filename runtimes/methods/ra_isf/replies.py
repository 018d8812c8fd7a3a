"""Parsing of a model's verdicts: yes or no, or passage numbers. Each is parsed strictly first, then leniently."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from wikidx.runtimes.methods.sentences import words

_YES = {"yes", "know", "relevant", "relevance"}
_SIDE = re.compile(r"\b(yes|no|unknow|unknown|irrelevant|irrelevance)\b")
_BARE_NUMBERS = re.compile(r"\W*\d+(?:(?:\W+|\W+and\W+)\d+)*\W*")
_BRACKETED = re.compile(r"\[(\d+(?:\s*,\s*\d+)*)\]")
_AFTER_NOUN = re.compile(r"\b(?:passage|paragraph|document)s?\s+(\d+(?:(?:\s*,\s*|\s+and\s+|\s*,\s*and\s+)\d+)*)")


class Verdict(NamedTuple):
    """Yes or no.

    Attributes:
        yes: the verdict; False also if the reply has none.
        found: whether the reply has a verdict.
        score: probability of yes, if requested and known.
    """

    yes: bool
    found: bool = True
    score: float | None = None


def verdict(text: str) -> Verdict:
    """Parse yes or no: the whole reply, or else its first decisive word.

    "know", "relevance" and their opposites are the labels of the paper's sub-models; the positive ones count only as a whole reply, since
    "I do not know" contains one too.
    """
    plain = words(text)
    if plain in _YES:
        return Verdict(True)
    side = _SIDE.search(plain)
    return Verdict(side is not None and side[0] == "yes", found=side is not None)


def relevant_numbers(text: str, n_passages: int) -> tuple[frozenset[int], bool]:
    """Parse the passage numbers of a joint verdict, and whether it was readable; a reply that begins with "no" or "none" names none."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    if words(plain).split(" ")[0] in ("no", "none"):
        return frozenset(), True
    if _BARE_NUMBERS.fullmatch(plain):
        named = [plain]
    else:
        named = _BRACKETED.findall(plain) or _AFTER_NOUN.findall(plain)
    numbers = {int(number) for digits in named for number in re.findall(r"\d{1,9}", digits)}
    within = frozenset(number for number in numbers if 1 <= number <= n_passages)
    return within, bool(within)

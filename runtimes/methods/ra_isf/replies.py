"""Parsing of a model's verdicts: yes or no, or the numbers of relevant passages."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from wikidx.runtimes.methods.sentences import normalize_words

_YES = {"yes", "know", "relevant", "relevance"}
_SIDE = re.compile(r"\b(yes|no|unknow|unknown|irrelevant|irrelevance)\b")
_RELEVANT = re.compile(r"\b(?:(not|isn t|aren t)(?: \w+){0,3} )?relevant\b")
_CLAUSE_END = re.compile(r"[\n;]|\.\s|,\s*(?=(?:but |while |and )?\[\d+\] (?:is|are)\b)")
_DENIED = re.compile(r"\birrelevant|\b(?:not|isn.t|aren.t)\b.*\brelevant")
_BARE_NUMBERS = re.compile(r"\W*\d+(?:(?:\W+|\W+and\W+)\d+)*\W*")
_BRACKETED = re.compile(r"\[(\d+(?:\s*,\s*\d+)*)\]")
_AFTER_NOUN = re.compile(r"\b(?:passage|paragraph|document)s?\s+(\d+(?:(?:\s*,\s*|\s+and\s+|\s*,\s*and\s+)\d+)*)")


class Verdict(NamedTuple):
    """A verdict, yes or no.

    Attributes:
        is_yes: whether the verdict is yes; False if the reply has no verdict.
        is_readable: whether the reply has a verdict.
        score: probability of yes; None: not requested or unknown.
    """

    is_yes: bool
    is_readable: bool = True
    score: float | None = None


def parse_verdict(text: str) -> Verdict:
    """Parse a verdict from the whole reply, or else from its first decisive word, or else from its word "relevant", perhaps denied.

    The labels of the paper's sub-models ("know", "relevance" and their opposites) are verdicts as well. A positive label counts only as the
    whole reply, because "I do not know" contains "know".
    """
    plain = normalize_words(text)
    if plain in _YES:
        return Verdict(True)
    if side := _SIDE.search(plain):
        return Verdict(side[0] == "yes")
    relevant = _RELEVANT.search(plain)
    return Verdict(relevant is not None and relevant[1] is None, is_readable=relevant is not None)


def parse_relevant_numbers(text: str, n_passages: int) -> tuple[frozenset[int], bool]:
    """Return the numbers of the passages that a joint verdict names, and whether the verdict is readable.

    A reply that begins with "no" or "none" is readable and names no passages. Clauses that call passages irrelevant, and numbers outside 1
    to ``n_passages``, are ignored.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    if normalize_words(plain).split(" ")[0] in ("no", "none"):
        return frozenset(), True
    is_denied = bool(_DENIED.search(plain))
    if is_denied:
        plain = "\n".join(clause for clause in _CLAUSE_END.split(plain) if not _DENIED.search(clause))
    if _BARE_NUMBERS.fullmatch(plain):
        numbers_text = [plain]
    else:
        numbers_text = _BRACKETED.findall(plain) or _AFTER_NOUN.findall(plain)
    numbers = {int(number) for digits in numbers_text for number in re.findall(r"\d{1,9}", digits)}
    in_range = frozenset(number for number in numbers if 1 <= number <= n_passages)
    return in_range, bool(in_range) or is_denied

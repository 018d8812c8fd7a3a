"""Sentences and words of a text."""

from __future__ import annotations

import re
import unicodedata

_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s)|[。！？]++[」』”’）]*+|\n""")
_NEAR = 30  # characters read around an end mark; the limit keeps the time linear
_BEFORE_NUMBERS = frozenset("no jan feb mar apr jun jul aug sep sept oct nov dec".split())
_ABBREVIATED = frozenset(
    "mr mrs ms dr prof st mt ft sr jr gen col lt capt sgt rev hon gov sen rep vol pp vs etc approx dept est fig ca cf".split()
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) of each sentence, ascending, without surrounding spaces.

    A line break or a CJK end mark ends a sentence. Another end mark before a space ends a sentence unless the text continues in lower case.
    A full stop does not end a sentence after an initial ("J."), after letters separated by full stops ("U.S."), after a common English
    abbreviation ("St."), or between "No" or the short name of a month and a number.
    """
    ends = [match.end() for match in _END.finditer(text) if _is_end(text, match)]
    spans: list[tuple[int, int]] = []
    start = 0
    for end in [*ends, len(text)]:
        sentence = text[start:end]
        if sentence.strip():
            first = start + len(sentence) - len(sentence.lstrip())
            spans.append((first, start + len(sentence.rstrip())))
        start = end
    return spans


def split_sentences(text: str) -> list[str]:
    """Return the non-blank sentences of a text."""
    return [text[start:end] for start, end in sentence_spans(text)]


def normalize_words(text: str) -> str:
    """Return the words of a text, NFKC-normalised, case-folded, without punctuation, and separated by spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in plain).split())


def _is_end(text: str, match: re.Match[str]) -> bool:
    if match[0][0] not in ".!?…":
        return True
    following = text[match.end() : match.end() + _NEAR].lstrip(" \t")[:1]
    if following.islower():
        return False
    if match[0] != ".":
        return True
    before = text[max(match.start() - _NEAR, 0) : match.start()]
    word = before.split()[-1].lstrip("\"'“‘«([").casefold() if before[-1:].strip() else ""
    is_initial = len(word) == 1 and word.isalpha() and word not in "ai"
    is_numero = word in _BEFORE_NUMBERS and following.isdigit()
    return not (is_initial or is_numero or word in _ABBREVIATED or re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word))

"""Sentences of a text, by a short rule; other abbreviations than English ones end a sentence."""

from __future__ import annotations

import re

_END_MARK = r"""(?<![.!?…])[.!?…]++["'”’»)\]]*+(?=\s)|[。！？]++[」』”’）]*+"""
_END = re.compile(rf"{_END_MARK}|\n")
_END_IN_PROSE = re.compile(rf"{_END_MARK}|\n[^\S\n]*+\n")
_NEAR = 30  # characters read around an end mark; the limit keeps the time linear
_BEFORE_NUMBERS = frozenset("no jan feb mar apr jun jul aug sep sept oct nov dec".split())
_ABBREVIATED = frozenset(
    "mr mrs ms dr prof st mt ft sr jr gen col lt capt sgt rev hon gov sen rep vol pp vs etc approx dept est fig ca cf".split()
)


def sentence_spans(text: str, *, at_lines: bool = True) -> list[tuple[int, int]]:
    """Return the (start, end) of each sentence, ascending, without surrounding spaces.

    A line break (without ``at_lines``, a blank line) or a CJK end mark ends a sentence. Another end mark before a space ends a sentence
    unless the text continues in lower case. A full stop does not end a sentence after an initial ("J."), after letters separated by full
    stops ("U.S."), after a common English abbreviation ("St."), or between "No" or the short name of a month and a number.
    """
    pattern, blanks = (_END, " \t") if at_lines else (_END_IN_PROSE, None)
    ends = [match.end() for match in pattern.finditer(text) if _is_end(text, match, blanks)]
    spans: list[tuple[int, int]] = []
    start = 0
    for end in [*ends, len(text)]:
        sentence = text[start:end]
        if sentence.strip():
            first = start + len(sentence) - len(sentence.lstrip())
            spans.append((first, start + len(sentence.rstrip())))
        start = end
    return spans


def _is_end(text: str, match: re.Match[str], blanks: str | None) -> bool:
    if match[0][0] not in ".!?…":
        return True
    following = text[match.end() : match.end() + _NEAR].lstrip(blanks)[:1]
    if following.islower():
        return False
    if match[0] != ".":
        return True
    before = text[max(match.start() - _NEAR, 0) : match.start()]
    word = before.split()[-1].lstrip("\"'“‘«([").casefold() if before[-1:].strip() else ""
    is_initial = len(word) == 1 and word.isalpha() and word not in "ai"
    is_numero = word in _BEFORE_NUMBERS and following.isdigit()
    return not (is_initial or is_numero or word in _ABBREVIATED or re.fullmatch(r"(?:[^\W\d]\.)+[^\W\d]", word))

"""Parsing of a model's list of sub-questions."""

from __future__ import annotations

import re
from typing import NamedTuple

from .model_output import find_strings
from .sentences import normalize_words

_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d+[.):])[ \t]+(.+)$", re.MULTILINE)
_SEGMENT = re.compile(r"[^?？\n\"]+[?？]?")
_MARKS = ("?", "？")
_DECORATION = " \t\r\n\"'*`„“”"


class SubQuestion(NamedTuple):
    """A sub-question and its number in the model's list, from 1."""

    number: int
    text: str


def parse_sub_questions(text: str, *, is_cut: bool = False) -> list[SubQuestion]:
    """Parse a list of sub-questions: a JSON array, else numbered items, else bullets, else all segments that end with a question mark.

    Blank and repeated sub-questions are omitted; the others keep their numbers in the list.

    Args:
        text: the model's output.
        is_cut: whether the output was cut off at its maximum length. If so, a last sub-question without a question mark is omitted.
    """
    items = find_strings(text) or _numbered_items(text) or _BULLET.findall(text) or _questions_in(text)
    if is_cut and items and not items[-1].rstrip(_DECORATION).endswith(_MARKS):
        items = items[:-1]
    distinct: dict[str, SubQuestion] = {}
    for number, item in enumerate(items, 1):
        if normalize_words(item):
            distinct.setdefault(normalize_words(item), SubQuestion(number, item.strip(_DECORATION)))
    return list(distinct.values())


def _questions_in(text: str) -> list[str]:
    """Return the segments of a text that end with a question mark."""
    return [segment for segment in _SEGMENT.findall(text) if segment.endswith(_MARKS)]


def _numbered_items(text: str) -> list[str]:
    """Return the texts after "1.", "2.", …, each up to the next of these numbers or the end of the line."""
    items: list[str] = []
    _, *rest = _split_at(1, text)
    while rest:
        item, *rest = _split_at(len(items) + 2, rest[0])
        items.append(item.strip().partition("\n")[0])
    return items


def _split_at(number: int, text: str) -> list[str]:
    """Split a text at the first occurrence of ``number`` followed by a full stop or a closing bracket."""
    return re.split(rf"(?:^|(?<=\s)){number}[.)](?=\s|$)", text, maxsplit=1)

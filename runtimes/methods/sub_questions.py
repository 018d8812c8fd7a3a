"""Parsing of a model's list of sub-questions."""

from __future__ import annotations

import re
from typing import NamedTuple

from .model_output import strings
from .sentences import words

_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d+[.):])[ \t]+(.+)$", re.MULTILINE)
_STRETCH = re.compile(r"[^?？\n\"]+[?？]?")
_MARKS = ("?", "？")
_AROUND = " \t\r\n\"'*`„“”"


class SubQuestion(NamedTuple):
    """A sub-question and its number in the model's list, from 1."""

    number: int
    text: str


def sub_questions(text: str, *, is_cut: bool = False) -> list[SubQuestion]:
    """Parse a list of sub-questions: JSON, else numbered from 1, else with bullets, else all texts that end with a question mark.

    Blank and repeated ones are left out; the numbers remain those of the list.

    Args:
        text: the reply.
        is_cut: whether the reply ended at its maximum length, so that a last sub-question without a question mark is left out.
    """
    items = strings(text) or _numbered(text) or _BULLET.findall(text) or _asked(text)
    if is_cut and items and not items[-1].rstrip(_AROUND).endswith(_MARKS):
        items = items[:-1]
    kept: dict[str, SubQuestion] = {}
    for number, item in enumerate(items, 1):
        if words(item):
            kept.setdefault(words(item), SubQuestion(number, item.strip(_AROUND)))
    return list(kept.values())


def _asked(text: str) -> list[str]:
    """Return the texts that end with a question mark; in one pass, since a line may be arbitrarily long."""
    return [stretch for stretch in _STRETCH.findall(text) if stretch.endswith(_MARKS)]


def _numbered(text: str) -> list[str]:
    """Return the text after each "1.", "2.", … up to the end of its line; several numbers may be on one line."""
    items: list[str] = []
    _, *rest = _split_at(1, text)
    while rest:
        item, *rest = _split_at(len(items) + 2, rest[0])
        items.append(item.strip().partition("\n")[0])
    return items


def _split_at(number: int, text: str) -> list[str]:
    """Split a text at the first "number." or "number)", if there is one."""
    return re.split(rf"(?:^|(?<=\s)){number}[.)](?=\s|$)", text, maxsplit=1)

"""Checks of citations and snippets against the passages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from wikidx.corpora.passage import Passage

Verbatim = Literal["exact", "folded", "elsewhere", "no"]
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)", re.ASCII)


def find_cited(reference: str, passages: Sequence[Passage]) -> int | None:
    """Return the index of a cited passage, from 0; None if no passage matches.

    A reference is either a passage's title or a text whose first number is the passage's number, from 1.
    """
    for position, passage in enumerate(passages):
        if reference and reference == passage.title:
            return position
    number = _NUMBER.search(reference)
    return int(number[0]) - 1 if number and 1 <= int(number[0]) <= len(passages) else None


def match_snippet(snippet: str, position: int | None, passages: Sequence[Passage]) -> Verbatim:
    """Search for a snippet in title and text of the cited passage, then in the other passages.

    Returns:
        "exact": the cited passage contains the snippet literally.
        "folded": the cited passage contains the snippet except for case, spacing and Unicode compatibility forms.
        "elsewhere": another passage contains the snippet, except for the same differences.
        "no": no passage contains the snippet.
    """
    if not snippet:
        return "no"
    if position is not None:
        if snippet in _passage_text(passages[position]):
            return "exact"
        if _fold(snippet) in _fold(_passage_text(passages[position])):
            return "folded"
    return "elsewhere" if any(_fold(snippet) in _fold(_passage_text(passage)) for passage in passages) else "no"


def _passage_text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())

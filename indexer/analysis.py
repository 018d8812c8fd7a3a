"""Text -> index terms. An index keeps the name of its analyzer and analyses queries with the same one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Analyzer = Callable[[str], list[str]]

_TOKEN = re.compile(r"[^\W_]+")

# Lucene's default English stop words (EnglishAnalyzer.ENGLISH_STOP_WORDS_SET).
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)


class _Stems(dict[str, str]):
    """word -> stem, '' for a stop word; filled as words are met, so that each is stemmed once."""

    def __missing__(self, word: str) -> str:
        self[word] = stem = "" if word in STOP_WORDS else _singular(word)
        return stem


def _singular(word: str) -> str:
    """Return the word without a plural ending: Harman's S stemmer (How effective is suffixing?, JASIS 1991)."""
    if len(word) <= 3 or not word.endswith("s"):
        return word
    if word.endswith("ies") and word[-4] not in "ae":
        return word[:-3] + "y"
    if word.endswith("es") and word[-3] not in "aeo":
        return word[:-1]
    return word if word[-2] in "us" else word[:-1]


_MAX_STEMS = 1 << 20  # vocabulary grows with the corpus; memory must not
_stems = _Stems()


def plain_english(text: str) -> list[str]:
    """Return the terms of a text in order: runs of letters and digits, lower-cased, without stop words and plural endings."""
    if len(_stems) > _MAX_STEMS:
        _stems.clear()
    return [stem for word in _TOKEN.findall(text.lower()) if (stem := _stems[word])]


ANALYZERS: Mapping[str, Analyzer] = {"plain-english": plain_english}

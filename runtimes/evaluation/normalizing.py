"""Normalisations of answers before comparison, each named after its origin.

Each normalisation has four steps, in this order: lower-case; remove punctuation; replace the articles "a", "an" and "the" by a space;
collapse white space. Punctuation is removed before articles, so that "A. Milne" loses its "A". Only ASCII punctuation is removed;
typographic quotes, dashes and accents remain. As an exception, ``triviaqa`` replaces punctuation by spaces, and some typographic quotes
too.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache, lru_cache

from wikidx.base.errors import require_packages

_ARTICLES = r"\b(a|an|the)\b"
_re_articles = re.compile(_ARTICLES)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TRIVIAQA_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
_CACHED = 1 << 16  # number of texts; several metrics normalise the same texts


@lru_cache(_CACHED)
def squad(text: str) -> str:
    """Normalise a text as SQuAD 1.1 and 2.0, HotpotQA, 2Wiki, KILT, ALCE, ASQA, Self-RAG and FlashRAG do.

    Punctuation is removed without a space: "twenty-one" becomes "twentyone", "a.m." becomes "am".
    """
    return " ".join(_re_articles.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(_CACHED)
def dpr(text: str) -> str:
    """Normalise a text as DPR, FiD and GenRead do.

    The steps are those of ``squad``, but articles are found with the word boundaries of the package ``regex``. There, combining marks and
    joiners belong to words, and superscripts do not: "a² + b²" loses its "a", and "thé" with a combining accent keeps its "the".

    Raises:
        MissingExtraError: ``regex`` is not installed.
    """
    return " ".join(_without_articles_by_regex()(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(_CACHED)
def triviaqa(text: str) -> str:
    """Normalise a text as TriviaQA's own evaluator does.

    Each ASCII punctuation mark, and each of ‘ ’ ´, becomes a space: "twenty-one" becomes "twenty one".
    """
    return " ".join(_re_articles.sub(" ", text.lower().translate(_TRIVIAQA_PUNCTUATION)).split())


@cache
def _without_articles_by_regex() -> Callable[[str, str], str]:
    require_packages("DPR's normalisation", "eval", "regex")
    import regex

    substitute: Callable[[str, str], str] = regex.compile(_ARTICLES).sub
    return substitute

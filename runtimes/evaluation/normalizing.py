"""Normalisations of answers before comparison, each named by its origin.

All of them lower-case, remove punctuation, replace the articles "a", "an" and "the" by a space, and collapse white space, in this order:
"a.m." becomes "am" and keeps its letters, "A. Milne" loses its "A". Only ASCII punctuation counts: curly quotes, dashes and accents stay.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache, lru_cache

from wikidx.corpora.errors import MissingExtraError

_ARTICLES = r"\b(a|an|the)\b"
_re_articles = re.compile(_ARTICLES)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TRIVIAQA_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
_CACHED = 1 << 16  # every metric of an answer normalises the same texts


@lru_cache(_CACHED)
def squad(text: str) -> str:
    """Return a text as SQuAD 1.1 and 2.0, HotpotQA, 2Wiki, KILT, ALCE, ASQA, Self-RAG and FlashRAG compare it.

    Punctuation is removed without a space: "twenty-one" becomes "twentyone".
    """
    return " ".join(_re_articles.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(_CACHED)
def dpr(text: str) -> str:
    """Return a text as DPR, FiD and GenRead compare it.

    As ``squad``, but with the word boundaries of the package ``regex``: combining marks and joiners belong to words, superscripts do not:
    "a² + b²" loses its "a" here, and a "thé" with a combining accent keeps its "the".

    Raises:
        MissingExtraError: ``regex`` is not installed.
    """
    return " ".join(_without_articles_by_regex()(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(_CACHED)
def triviaqa(text: str) -> str:
    """Return a text as TriviaQA's own evaluation compares it.

    Each punctuation mark becomes a space, and ‘ ’ ´ ` are such marks too: "twenty-one" becomes "twenty one".
    """
    return " ".join(_re_articles.sub(" ", text.lower().translate(_TRIVIAQA_PUNCTUATION)).split())


@cache
def _without_articles_by_regex() -> Callable[[str, str], str]:
    try:
        import regex
    except ImportError as error:
        raise MissingExtraError("DPR's normalisation", "eval") from error
    substitute: Callable[[str, str], str] = regex.compile(_ARTICLES).sub
    return substitute

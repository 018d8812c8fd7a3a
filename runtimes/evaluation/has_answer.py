"""Whether a text holds an answer, as DPR counts it (facebookresearch/DPR, dpr/data/qa_validation.py, match type "string").

Text and answer are NFD-normalised, cut into tokens (runs of letters, digits and marks, or single other visible characters), lower-cased,
and the answer's tokens must stand in the text's in a row. An answer without tokens is in every text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from corpora.errors import MissingExtraError

try:
    import regex
except ImportError as error:
    raise MissingExtraError("has_answer", "eval") from error

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Return whether any of the answers is in the text."""
    tokens = _tokens(text)
    return any(_tokens(answer) in tokens for answer in answers)


@lru_cache(maxsize=1 << 17)
def _tokens(text: str) -> str:
    """Return the tokens with a space before and after each: no token holds a space, so a row of tokens is a substring."""
    tokens = _TOKEN.findall(unicodedata.normalize("NFD", text))
    return " " + "".join(f"{token.lower()} " for token in tokens)

"""ALCE's preprocessing of long answers (princeton-nlp/ALCE, eval.py)."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SPACED_CITATION = re.compile(r" \[\d+")
_CITATION = re.compile(r"\[\d+")


def first_line(output: str) -> str:
    """Return the scored part of an output: its first line, after stripping white space and ``<|im_end|>``."""
    return output.strip().split("\n")[0].replace("<|im_end|>", "")


def remove_citations(text: str) -> str:
    """Return a text without its citations "[1]".

    Literally: "[" with the digits after it and one space before it is removed; then every "]" and " |", part of a citation or not.
    """
    return _CITATION.sub("", _SPACED_CITATION.sub("", text)).replace(" |", "").replace("]", "")


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences at white space after ".", "!" or "?", regardless of abbreviations.

    ALCE splits with NLTK's ``sent_tokenize``, whose model is not part of any package.
    """
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]

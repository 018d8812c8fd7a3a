"""ALCE's preprocessing of long answers (princeton-nlp/ALCE, eval.py)."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SPACED_CITATION = re.compile(r" \[\d+")
_CITATION = re.compile(r"\[\d+")


def first_line(output: str) -> str:
    """Return the part of an output that ALCE scores: the first line of the stripped output, without ``<|im_end|>``."""
    return output.strip().split("\n")[0].replace("<|im_end|>", "")


def remove_citations(text: str) -> str:
    """Return a text without citations such as "[1]".

    First, each "[" followed by digits is removed, together with the digits and one preceding space. Then every " |" and "]" is removed,
    even outside citations.
    """
    return _CITATION.sub("", _SPACED_CITATION.sub("", text)).replace(" |", "").replace("]", "")


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences at white space after ".", "!" or "?", regardless of abbreviations.

    ALCE splits with NLTK's ``sent_tokenize``, which needs a separate download of its model.
    """
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]

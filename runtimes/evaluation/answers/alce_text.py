"""ALCE's preprocessing of long answers (princeton-nlp/ALCE, eval.py)."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SPACED_CITATION = re.compile(r" \[\d+")
_CITATION = re.compile(r"\[\d+")


def first_line(output: str) -> str:
    """Return what is scored of an output: the line that it begins with, white space around the output and ``<|im_end|>`` left out."""
    return output.strip().split("\n")[0].replace("<|im_end|>", "")


def remove_citations(text: str) -> str:
    """Return a text without its citations "[1]".

    Literally: "[" with the digits behind it goes, with one space before it; then every "]" and " |" goes, of a citation or not.
    """
    return _CITATION.sub("", _SPACED_CITATION.sub("", text)).replace(" |", "").replace("]", "")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text: it is cut where white space follows ".", "!" or "?", abbreviations or not.

    ALCE cuts with NLTK's ``sent_tokenize``, whose model is not part of any package.
    """
    return [sentence for sentence in _SENTENCE_END.split(text.strip()) if sentence]

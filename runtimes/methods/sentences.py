"""Sentences and words of a text."""

from __future__ import annotations

import unicodedata

from wikidx.corpora.reading.sentences import sentence_spans as sentence_spans


def split_sentences(text: str) -> list[str]:
    """Return the non-blank sentences of a text."""
    return [text[start:end] for start, end in sentence_spans(text)]


def normalize_words(text: str) -> str:
    """Return the words of a text, NFKC-normalised, case-folded, without punctuation, and separated by spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in plain).split())

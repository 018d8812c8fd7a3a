"""The record that streams through everything: an id, a title and a text.

A whole article is the same record before it is split (``corpora.splitters``), so readers, splitters and the store share one type.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import NamedTuple


class Passage(NamedTuple):
    """A passage (or, before splitting, an article) with the dump's own id string."""

    id: str
    title: str
    text: str


class Located(NamedTuple):
    """A passage and where it was read, so that an error found later can name file and line (1-based)."""

    passage: Passage
    file: str
    line: int


def text_key(text: str) -> int:
    """Return a 64-bit key that is equal for texts that differ only in case, spacing or Unicode compatibility form.

    BLAKE2b over the NFKC, lower-cased, space-collapsed text. Among 35 million passages the chance of any accidental
    collision is about 3e-5.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.lower()
    # Printable text has no white space but single spaces to collapse: true of nearly all passages, and five times faster to see.
    folded = folded.strip() if folded.isprintable() and "  " not in folded else " ".join(folded.split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")

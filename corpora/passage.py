"""Records shared by readers, splitters and the store: passages, bad records and source files.

A ``Passage`` has an id, a title and a text; it may also be a whole article, which ``corpora.reading.splitters`` splits.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Passage(NamedTuple):
    """A passage (or, before splitting, an article) with its original id from the dump."""

    id: str
    title: str
    text: str


class LocatedPassage(NamedTuple):
    """A passage and its location, file and line (1-based), for later errors."""

    passage: Passage
    file: str
    line: int


class BadRecord(NamedTuple):
    """An unusable record, with its location (1-based line) and the reason."""

    file: str
    line: int
    reason: str


OnBad = Callable[[BadRecord], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of a corpus: its local name, its address, and published size and checksums."""

    name: str
    url: str
    n_bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None


def text_key(text: str) -> int:
    """Return a 64-bit key shared by texts that differ only in case, spacing or Unicode compatibility form.

    The key is BLAKE2b of the text after NFKC, lower-casing and collapsing of white space. Among 35 million passages,
    the probability of any accidental collision is about 3e-5.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.lower()
    # Fast path for nearly all passages, five times faster: the space is the only white space in printable text.
    folded = folded.strip() if folded.isprintable() and "  " not in folded else " ".join(folded.split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")

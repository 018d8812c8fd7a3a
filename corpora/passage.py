"""Records shared by readers, splitters and the store, above all the passage: an id, a title and a text.

A whole article is the same record before it is split (``corpora.reading.splitters``), so readers, splitters and the store share one type.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Passage(NamedTuple):
    """A passage (or, before splitting, an article) with the dump's own id string."""

    id: str
    title: str
    text: str


class Located(NamedTuple):
    """A passage and its location, so that a later error can name file and line (1-based)."""

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
    """Return a 64-bit key that is equal for texts that differ only in case, spacing or Unicode compatibility form.

    BLAKE2b over the NFKC, lower-cased, space-collapsed text. Among 35 million passages the chance of any accidental
    collision is about 3e-5.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.lower()
    # Fast path for nearly all passages: printable text has no other white space to collapse than spaces. Five times faster.
    folded = folded.strip() if folded.isprintable() and "  " not in folded else " ".join(folded.split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")

"""Records shared by readers, splitters and the store: passages, bad records and source files."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Numbers of passages in the store, from 0; NO_ROW for none."""
NO_ROW = -1
"""Row of no passage."""


class Passage(NamedTuple):
    """A passage, or a whole article before ``corpora.reading.splitters`` splits it."""

    id: str
    title: str
    text: str


def title_and_text(passage: Passage) -> str:
    """Return title and text with a space between them, or the text alone if there is no title."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text


class Span(NamedTuple):
    """The place of a passage in the document that it was split from.

    Attributes:
        document: id of the document.
        start, end: offsets in the document's extracted text, in characters: the passage is from ``start`` to before ``end``.
        page: number of the page on which it begins, from 1; 0 if the document has no pages.
        heading: path of the headings above it, such as "Guide > Install"; "" without one.
    """

    document: str
    start: int
    end: int
    page: int
    heading: str


class LocatedPassage(NamedTuple):
    """A passage with its file and line (from 1), for error messages, and its place in a document, if it was split from one."""

    passage: Passage
    file: str
    line: int
    span: Span | None = None


class BadRecord(NamedTuple):
    """An unusable record: its file, its line (from 1), and the reason."""

    file: str
    line: int
    reason: str


OnBad = Callable[[BadRecord], None]


def text_key(text: str) -> int:
    """Return a 64-bit key shared by texts that differ only in case, spacing or Unicode compatibility form.

    The key is the BLAKE2b hash of the text after NFKC, lower-casing and collapsing of white space. Among 35 million passages, the
    probability of any accidental collision is about 3e-5.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    folded = text.lower()
    # In printable text the space is the only white space; the first branch, for nearly all passages, is five times faster.
    folded = folded.strip() if folded.isprintable() and "  " not in folded else " ".join(folded.split())
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")

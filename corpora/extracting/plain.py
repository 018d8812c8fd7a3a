"""Extractor of plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wikidx.corpora.reading.document import Document

from .building import TextBuilder, read_plain


def read(path: Path) -> Iterator[Document]:
    """Yield a text file as a document; raises ``InputError`` if it cannot be read."""
    builder = TextBuilder()
    builder.add(read_plain(path))
    yield builder.document(path)

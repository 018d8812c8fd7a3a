"""A document, which a reader yields and a splitting rule divides into passages."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from wikidx.corpora.passage import Span


class Heading(NamedTuple):
    """A heading: where it begins in the text, its level from 1, and its words."""

    start: int
    level: int
    text: str


class Document(NamedTuple):
    """A document before it is split.

    Attributes:
        id: id of the document.
        title: its title; may be empty.
        text: the extracted text, in which the headings stand, too.
        pages: offset at which each page begins in the text, ascending; empty: the document has no pages.
        headings: the headings, in the order of the text.
    """

    id: str
    title: str
    text: str
    pages: tuple[int, ...] = ()
    headings: tuple[Heading, ...] = ()

    def span(self, start: int, end: int, heading_at: int | None = None) -> Span:
        """Return the span from ``start`` to before ``end``, with the headings that are in force at ``heading_at``, by default its start."""
        page = max(1, bisect_right(self.pages, start)) if self.pages else 0
        return Span(self.id, start, end, page, self.heading_path(start if heading_at is None else heading_at))

    def heading_path(self, offset: int) -> str:
        """Return the headings in force at an offset, from the highest level down, such as "Guide > Install"; "" before the first."""
        path: list[Heading] = []
        for heading in self.headings[: bisect_right(self.headings, offset, key=lambda heading: heading.start)]:
            path = [*(above for above in path if above.level < heading.level), heading]
        return " > ".join(" ".join(heading.text.split()) for heading in path)


class LocatedDocument(NamedTuple):
    """A document with its file, and its line or its number in the file (from 1), for error messages."""

    document: Document
    file: str
    line: int

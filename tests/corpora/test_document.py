from __future__ import annotations

from pathlib import Path

import pytest

from wikidx.corpora.passage import BadRecord, LocatedPassage, Passage, Span
from wikidx.corpora.reading.document import Document, Heading
from wikidx.corpora.reading.readers import Format

TEXT = "Intro. Guide Install  it Remove API"
HEADINGS = (Heading(7, 1, "Guide"), Heading(13, 2, "Install \n it"), Heading(25, 2, "Remove"), Heading(32, 1, "API"))
MANUAL = Document("m", "Manual", TEXT, pages=(0, 13, 13, 30), headings=HEADINGS)


@pytest.mark.parametrize(
    ("offset", "page", "path"),
    [
        (0, 1, ""),
        (6, 1, ""),
        (7, 1, "Guide"),
        (12, 1, "Guide"),
        (13, 3, "Guide > Install it"),  # the second page is empty
        (26, 3, "Guide > Remove"),
        (30, 4, "Guide > Remove"),
        (34, 4, "API"),
    ],
)
def test_page_and_headings_of_an_offset(offset: int, page: int, path: str) -> None:
    assert MANUAL.span(offset, 35) == Span("m", offset, 35, page, path)


def test_document_without_pages_or_headings() -> None:
    assert Document("m", "", "text").span(2, 3) == Span("m", 2, 3, 0, "")
    assert MANUAL._replace(pages=(5,)).span(0, 3).page == 1  # what is before the first page is shown on it


def test_level_that_is_left_out_and_comes_later() -> None:
    document = Document("m", "", "abc", headings=(Heading(0, 3, "deep"), Heading(1, 2, "higher"), Heading(2, 4, "deepest")))
    assert [document.heading_path(offset) for offset in range(3)] == ["deep", "higher", "higher > deepest"]


def test_format_of_documents_gives_each_whole_with_its_place() -> None:
    manuals = Format(name="manuals", documents=lambda path: iter([MANUAL, Document("n", "", "x")]))
    assert list(manuals.read(Path("f"))) == [
        LocatedPassage(Passage("m", "Manual", TEXT), "f", 1, Span("m", 0, 35, 1, "")),
        LocatedPassage(Passage("n", "", "x"), "f", 2, Span("n", 0, 1, 0, "")),
    ]
    assert [located.document for located in manuals.read_documents(Path("f"))] == [MANUAL, Document("n", "", "x")]


def test_records_are_documents_without_pages() -> None:
    bad: list[BadRecord] = []
    records = [(3, {"id": "7", "title": "Sun", "text": "a star"}), (4, {"id": "8"})]
    cards = Format(name="cards", records=lambda path, on_bad: records)
    assert list(cards.read_documents(Path("f"), bad.append)) == [(Document("7", "Sun", "a star"), "f", 3)]
    assert [each.line for each in bad] == [4]

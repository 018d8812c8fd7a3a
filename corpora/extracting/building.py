"""A document's text, made of blocks, with its pages and headings at their offsets."""

from __future__ import annotations

from pathlib import Path

from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import read_bytes
from wikidx.corpora.reading.document import Document, Heading

_BINARY_BYTES = 8192
_GAP = "\n\n"


class TextBuilder:
    """Builder of a document: blocks of text are separated by an empty line, and blank ones left out."""

    def __init__(self) -> None:
        self._blocks, self._length = list[str](), 0
        self._pages, self._headings = list[int](), list[Heading]()

    def add(self, block: str) -> None:
        """Add a block, such as a paragraph."""
        if block := block.strip():
            self._blocks.append(block)
            self._length += len(block) + len(_GAP)

    def add_heading(self, level: int, text: str) -> None:
        """Add a heading, which stands in the text, too; its white space is collapsed."""
        if text := " ".join(text.split()):
            self._headings.append(Heading(self._length, level, text))
            self.add(text)

    def mark_heading(self, start: int, level: int, text: str) -> None:
        """Add a heading whose words stand in the text already, at an offset."""
        self._headings.append(Heading(start, level, " ".join(text.split())))

    def begin_page(self) -> int:
        """Begin a page, and return its offset."""
        self._pages.append(self._length)
        return self._length

    def document(self, path: Path, title: str | None = None) -> Document:
        """Return the document; without a title, it has that of its first heading, else its file's name.

        Raises:
            InputError: there is no text.
        """
        text = _GAP.join(self._blocks)
        if not text:
            raise InputError(f"{path} holds no text")
        headings = sorted(self._headings, key=lambda heading: heading.start)
        title = " ".join((title or "").split()) or (headings[0].text if headings else path.name.partition(".")[0])
        return Document("", title, text, tuple(min(page, len(text)) for page in self._pages), tuple(headings))


def read_plain(path: Path) -> str:
    """Return the text of a file in UTF-8, also compressed.

    Raises:
        InputError: the file holds binary data, or is not UTF-8.
    """
    content = read_bytes(path)
    if b"\0" in content[:_BINARY_BYTES]:
        raise InputError(f"{path} holds binary data, not text: leave it out, or name its --format")
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start + 1} is not UTF-8 (0x{content[error.start]:02x}): convert it") from None

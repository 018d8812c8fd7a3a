"""Extractor of PDF, by PDFium: the text of its pages, with words joined that a hyphen at a line's end divides, and its bookmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wikidx.base.errors import InputError, require_packages
from wikidx.corpora.reading.document import Document

from .building import TextBuilder

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

# A hyphen at a line's end, which PDFium shows as \x02 instead of both, and between small letters divides a word.
_DIVIDED = re.compile(r"(?<=[a-z])(?:-\n|[\x02\u00ad\ufffe]\n?)(?=[a-z])")
_HYPHEN = re.compile("[\x02\ufffe]")
_PASSWORD = "password"  # noqa: S105 - PDFium's word


def read(path: Path) -> Iterator[Document]:
    """Yield a PDF file as a document.

    Raises:
        InputError: the file cannot be read, is encrypted, or holds no text, as scanned pages do.
        MissingExtraError: a package is missing.
    """
    require_packages("reading PDF", "documents", "pypdfium2")
    import pypdfium2 as pdfium

    try:
        pdf = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if _PASSWORD in str(error).lower():
            raise InputError(f"{path} is encrypted: save it without a password") from error
        raise InputError(f"{path} is no PDF that can be read ({error}): save it again") from error
    with pdf:
        yield _document(path, pdf)


def _document(path: Path, pdf: PdfDocument) -> Document:
    builder, starts, texts = TextBuilder(), list[int](), list[str]()
    for page in pdf:
        text = page.get_textpage().get_text_bounded()
        text = _HYPHEN.sub("-", _DIVIDED.sub("", text.replace("\r\n", "\n"))).strip().replace("\0", "")
        starts.append(builder.begin_page())
        texts.append(text)
        builder.add(text)
    for bookmark in pdf.get_toc():
        title, dest = bookmark.get_title(), bookmark.get_dest()
        number = dest.get_index() if dest else None
        if number is not None and title.strip():
            found = re.search(r"\s+".join(map(re.escape, title.split())), texts[number])
            builder.mark_heading(starts[number] + (found.start() if found else 0), bookmark.level + 1, title)
    if not any(texts):
        raise InputError(f"{path} holds no text, as scanned pages do: recognise it first, such as by ocrmypdf")
    return builder.document(path, pdf.get_metadata_value("Title").strip() or path.stem)

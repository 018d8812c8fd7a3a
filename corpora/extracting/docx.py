"""Extractor of DOCX, by its XML: paragraphs, rows of tables, and headings by their styles' names or levels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from wikidx.corpora.reading.document import Document

from .building import TextBuilder
from .members import Members, open_members

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_HEADING = re.compile(r"(?:heading|title) ?(\d?)", re.IGNORECASE)
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}


def read(path: Path) -> Iterator[Document]:
    """Yield a DOCX file as a document; raises ``InputError`` if it cannot be read."""
    builder = TextBuilder()
    with open_members(path, "DOCX") as members:
        levels = _heading_levels(members)
        body = members.xml("word/document.xml").find(f"{_W}body")
        for block in body if body is not None else ():
            _add(builder, block, levels)
        core = members.xml("docProps/core.xml") if "docProps/core.xml" in members else Element("none")
    yield builder.document(path, core.findtext(_TITLE))


def _heading_levels(members: Members) -> dict[str, int]:
    """Return the level of each style of headings, by its id."""
    levels = dict[str, int]()
    for style in members.xml("word/styles.xml").iter(f"{_W}style") if "word/styles.xml" in members else ():
        name, outline = style.find(f"{_W}name"), style.find(f"{_W}pPr/{_W}outlineLvl")
        known = _HEADING.fullmatch(name.get(f"{_W}val", "") if name is not None else "")
        if known is not None:
            levels[style.get(f"{_W}styleId", "")] = int(known[1] or 1)
        elif outline is not None:
            levels[style.get(f"{_W}styleId", "")] = int(outline.get(f"{_W}val", "0")) + 1
    return levels


def _add(builder: TextBuilder, block: Element, levels: dict[str, int]) -> None:
    if block.tag == f"{_W}p":
        style = block.find(f"{_W}pPr/{_W}pStyle")
        level = levels.get(style.get(f"{_W}val", "")) if style is not None else None
        builder.add(_text(block)) if level is None else builder.add_heading(level, _text(block))
    elif block.tag == f"{_W}tbl":
        for row in block.iter(f"{_W}tr"):
            builder.add(" | ".join(" ".join(map(_text, cell.iter(f"{_W}p"))) for cell in row.iter(f"{_W}tc")))
    elif block.tag == f"{_W}sdt":
        for inner in block.iterfind(f"{_W}sdtContent/*"):
            _add(builder, inner, levels)


def _text(paragraph: Element) -> str:
    return "".join(_BREAKS.get(part.tag, part.text or "" if part.tag == f"{_W}t" else "") for part in paragraph.iter())

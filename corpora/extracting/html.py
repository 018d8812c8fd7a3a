"""Extractor of HTML, by lxml: the text of a page without scripts, styles, navigation and forms, with its headings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wikidx.base.errors import InputError, require_packages
from wikidx.corpora.reading.compression import read_bytes
from wikidx.corpora.reading.document import Document

from .building import TextBuilder

_LEFT_OUT = frozenset("head script style noscript template nav form button select svg iframe object".split())
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp small span strong sub sup "
    "time tt u var wbr".split()
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}


def read(path: Path) -> Iterator[Document]:
    """Yield a page as a document.

    Raises:
        InputError: the file cannot be read, or holds no text.
        MissingExtraError: a package is missing.
    """
    builder = TextBuilder()
    title = add_page(builder, read_bytes(path), str(path))
    yield builder.document(path, title)


def add_page(builder: TextBuilder, content: bytes, name: str) -> str:
    """Add the text of a page in UTF-8, or else in the character set that it declares, to a builder, and return its title."""
    require_packages("reading HTML", "documents", "lxml")
    from lxml import etree

    try:
        content.decode()
        encoding: str | None = "utf-8"
    except UnicodeDecodeError:
        encoding = None
    root = etree.fromstring(content, etree.HTMLParser(encoding=encoding, remove_comments=True, remove_pis=True, no_network=True))
    if root is None:
        raise InputError(f"{name} holds no text")
    _Walk(builder).add(root)
    return root.findtext(".//title") or ""


class _Walk:
    """A walk through the elements of a page, which collects inline text, and adds it as a block where a block begins or ends."""

    def __init__(self, builder: TextBuilder) -> None:
        self._builder, self._words, self._n_left_out = builder, list[str](), 0

    def add(self, root: object) -> None:
        from lxml import etree

        is_pre = 0
        for event, element in etree.iterwalk(root, events=("start", "end")):
            tag, is_start = str(element.tag), event == "start"
            is_pre += (tag == "pre") * (1 if is_start else -1)
            if tag in ("td", "th"):
                self._take("" if is_start else " | ", is_pre=True)
            elif tag not in _INLINE:
                self._end_block("" if is_start else tag)
            if tag in _LEFT_OUT:
                self._n_left_out += 1 if is_start else -1
            self._take(element.text if is_start else element.tail, is_pre=bool(is_pre))
        self._end_block("")

    def _take(self, text: str | None, *, is_pre: bool) -> None:
        if text and not self._n_left_out:
            self._words.append(text if is_pre else _collapse(text))

    def _end_block(self, tag: str) -> None:
        text, self._words = "".join(self._words), []
        if tag in _HEADINGS:
            self._builder.add_heading(_HEADINGS[tag], text)
        else:
            self._builder.add(text.strip(" |\n") if " | " in text else text)


def _collapse(text: str) -> str:
    words = " ".join(text.split())
    return (" " if text[0].isspace() else "") + words + (" " if words and text[-1].isspace() else "")

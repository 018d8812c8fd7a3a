"""Extractor of EPUB: the pages of its spine, in reading order, by the extractor of HTML."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from wikidx.base.errors import InputError
from wikidx.corpora.reading.document import Document

from .building import TextBuilder
from .html import add_page
from .members import Members, open_members

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html")


def read(path: Path) -> Iterator[Document]:
    """Yield an EPUB file as a document.

    Raises:
        InputError: the file cannot be read, or its pages are encrypted.
        MissingExtraError: a package is missing.
    """
    builder = TextBuilder()
    with open_members(path, "EPUB") as members:
        root = next((each.get("full-path", "") for each in members.xml(_CONTAINER).iterfind(".//{*}rootfile")), "")
        package = members.xml(root)
        names = {
            item.get("id"): posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(item.get("href", ""))))
            for item in package.iterfind("{*}manifest/{*}item")
            if item.get("media-type") in _PAGES
        }
        encrypted = _encrypted(members)
        for name in filter(None, (names.get(item.get("idref")) for item in package.iterfind("{*}spine/{*}itemref"))):
            if name in encrypted:
                raise InputError(f"{path} is encrypted: only a copy without protection can be read")
            add_page(builder, members.read(name), f"{path}, {name}")
        title = package.findtext("{*}metadata/{http://purl.org/dc/elements/1.1/}title")
    yield builder.document(path, title)


def _encrypted(members: Members) -> set[str]:
    """Return the names of the encrypted members."""
    if _ENCRYPTION not in members:
        return set()
    return {unquote(each.get("URI", "")) for each in members.xml(_ENCRYPTION).iterfind(".//{*}CipherReference")}

"""Extractor of Markdown, by markdown-it: CommonMark with tables. Marks are left out, the words of links and images stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wikidx.base.errors import require_packages
from wikidx.corpora.reading.document import Document

from .building import TextBuilder, read_plain

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT = re.compile(r"---\n(.*?\n)?(---|\.\.\.)\n", re.DOTALL)
_TITLE = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<[^<>]*>", re.DOTALL)


def read(path: Path) -> Iterator[Document]:
    """Yield a file of Markdown as a document; a title in its front matter is the document's.

    Raises:
        InputError: the file cannot be read.
        MissingExtraError: a package is missing.
    """
    require_packages("reading Markdown", "documents", "markdown_it")
    from markdown_it import MarkdownIt

    text = read_plain(path)
    front = _FRONT.match(text)
    title = _TITLE.search(front[0]) if front else None
    tokens = MarkdownIt("commonmark").enable("table").parse(text[front.end() :] if front else text)
    builder = TextBuilder()
    level, cells, is_cell = 0, list[str](), False
    for token in tokens:
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type in ("td_open", "th_open", "td_close", "th_close"):
            is_cell = token.nesting > 0
        elif is_cell:
            cells.append(_words(token))
        elif token.type == "inline" and level:
            builder.add_heading(level, _words(token))
            level = 0
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            builder.add(_words(token) if token.type == "inline" else _without_tags(token))
        elif token.type == "tr_close":
            builder.add(" | ".join(cells))
            cells = []
    yield builder.document(path, title[1] if title else None)


def _words(inline: Token) -> str:
    parts = {"softbreak": "\n", "hardbreak": "\n", "html_inline": ""}
    return "".join(parts.get(child.type, child.content) for child in inline.children or ())


def _without_tags(token: Token) -> str:
    return _TAG.sub(" ", token.content) if token.type == "html_block" else token.content

"""Extractor of reStructuredText, by docutils; of roles and directives that it does not know, such as Sphinx's, the words are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wikidx.base.errors import InputError, require_packages
from wikidx.corpora.reading.document import Document

from .building import TextBuilder, read_plain

_ROLE = re.compile(r":[\w:+.-]+:`~?!?([^`<]+?)(?:\s*<[^`>]*>)?`")
_DIRECTIVE = re.compile(r"\.\. [\w:+.-]+::")
_SETTINGS: dict[str, object] = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 5,
    "_disable_config": True,
}


def read(path: Path) -> Iterator[Document]:
    """Yield a file of reStructuredText as a document.

    Raises:
        InputError: the file cannot be read.
        MissingExtraError: a package is missing.
    """
    require_packages("reading reStructuredText", "documents", "docutils")
    from docutils.core import publish_doctree

    text = _ROLE.sub(r"\1", read_plain(path))
    try:
        tree = publish_doctree(text, settings_overrides={**_SETTINGS, "doctitle_xform": False})
    except (RecursionError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is no reStructuredText that docutils can read: {error}") from error
    builder = TextBuilder()
    _add(builder, tree, 0)
    yield builder.document(path)


def _add(builder: TextBuilder, node: Any, level: int) -> None:  # noqa: ANN401 - a node of docutils
    for child in node.children:
        kind = child.__class__.__name__
        if kind == "title":
            builder.add_heading(max(1, level), child.astext())
        elif kind == "system_message":
            for literal in (each for each in child.children if each.__class__.__name__ == "literal_block"):
                builder.add(_DIRECTIVE.sub("", literal.astext()))
        elif kind == "row":
            builder.add(" | ".join(cell.astext() for cell in child.children))
        elif kind == "section":
            _add(builder, child, level + 1)
        elif kind not in ("comment", "substitution_definition", "target", "docinfo"):
            if child.children and child.__class__.__mro__[1].__name__ not in ("TextElement", "FixedTextElement"):
                _add(builder, child, level)
            elif kind != "#text":
                builder.add(child.astext())

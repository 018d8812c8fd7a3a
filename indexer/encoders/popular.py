"""Encoders in wide use, by the table ``popular.toml``; an attribute of this module is an encoder's name in capitals, such as ``BGE_M3``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from wikidx.corpora.passage import Passage, title_and_text

from .spec import EncoderSpec, hub_encoder


def contents(passage: Passage) -> str:
    """Return the title in double quotes and the text on a new line, or the text alone if there is no title."""
    return f'"{passage.title}"\n{passage.text}' if passage.title else passage.text


def label_title(passage: Passage) -> str:
    """Return title and text with EmbeddingGemma's labels."""
    return f"title: {passage.title or 'none'} | text: {passage.text}"


_TEXTS = {text.__name__: text for text in (title_and_text, contents, label_title)}


def __getattr__(attribute: str) -> EncoderSpec:
    """Return an encoder of the table."""
    name = attribute.lower().replace("_", "-")
    if name not in _read_table():
        raise AttributeError(f"there is no encoder {attribute}")
    return _read_table()[name]


@functools.cache
def _read_table() -> dict[str, EncoderSpec]:
    table = tomllib.loads(resources.files(__package__).joinpath("popular.toml").read_text(encoding="utf-8"))
    return {name: _from_table(name, **entry) for name, entry in table.items()}


def _from_table(name: str, *, passage_text: str = "title_and_text", dense: Sequence[str] = (), **settings: Any) -> EncoderSpec:  # noqa: ANN401
    return hub_encoder(name, passage_text=_TEXTS[passage_text], dense=tuple(dense), **settings)

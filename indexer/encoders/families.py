"""The encoders that have names, by the table ``encoders.toml``, and the forms of texts that their networks were trained on."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.networks.checkpoints import Checkpoint, HubCheckpoint, PackagedCheckpoint

from .spec import EncoderSpec, Pair, identity


def straighten(query: str) -> str:
    """Return a question with straight apostrophes (DPR)."""
    return query.replace("\u2019", "'").strip()


def pair(passage: Passage) -> Pair:
    """Return title and text. A separator follows even an empty title (SimLM)."""
    return passage.title, passage.text


def pair_if_titled(passage: Passage) -> str | Pair:
    """Return title and text, or the text alone if there is no title (DPR)."""
    text = passage.text.strip()
    return (passage.title, text) if passage.title else text


def pair_unquoted(passage: Passage) -> str | Pair:
    """Return ``pair_if_titled`` of the passage without double quotes at the edges of its text (DPR since 2021)."""
    return pair_if_titled(passage._replace(text=passage.text.strip('"')))


def title_above_text(passage: Passage) -> str:
    """Return title and text, each on its own line (GTR)."""
    return f"{passage.title}\n{passage.text}"


def contents(passage: Passage) -> str:
    """Return the title in double quotes and the text on a new line, or the text alone if there is no title (FlashRAG, Search-R1)."""
    return f'"{passage.title}"\n{passage.text}' if passage.title else passage.text


def label_title(passage: Passage) -> str:
    """Return title and text with EmbeddingGemma's labels."""
    return f"title: {passage.title or 'none'} | text: {passage.text}"


_TEXTS = {
    text.__name__: text
    for text in (identity, straighten, title_and_text, pair, pair_if_titled, pair_unquoted, title_above_text, contents, label_title)
}


def _checkpoint(text: str | None) -> Checkpoint:
    if text is None:
        return None
    if ":" in text:
        return PackagedCheckpoint(*text.split(":"))
    repository, _, revision = text.partition("@")
    return HubCheckpoint(repository, revision or "main")


def encoder_of(entry: str, settings: dict[str, Any]) -> EncoderSpec:
    """Return the encoder of an entry of the table."""
    values: dict[str, Any] = {"name": entry, "normalize": True, "by_transformers": True, **settings}
    common = values.pop("package", values.pop("repository", None))
    n_tokens = values.pop("max_tokens")
    for side, text in (("query", "identity"), ("passage", "title_and_text")):
        values[f"{side}_checkpoint"] = _checkpoint(values.pop(f"{side}_repository", common))
        values[f"{side}_text"] = _TEXTS[values.pop(f"{side}_text", text)]
        values.setdefault(f"max_{side}_tokens", n_tokens)
    return EncoderSpec(**{**values, "dense": tuple(values.get("dense", ()))})


_TABLE = tomllib.loads(resources.files(__package__).joinpath("encoders.toml").read_text(encoding="utf-8"))
ENCODERS = {name: encoder_of(name, settings) for name, settings in _TABLE.items()}

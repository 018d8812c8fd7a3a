"""Folders of sentence-transformers, and encoders of them by their recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from wikidx.indexer.encoders.anywhere import read_recipe, spec_from_recipe
from wikidx.indexer.encoders.recipes import RecipeOptions
from wikidx.indexer.encoders.spec import EncoderSpec


def save(network: Path, folder: Path, *layers: Any, length: int | None = None, lower: bool = False, **settings: Any) -> Path:  # noqa: ANN401
    """Save modules after a network as sentence-transformers does."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    torch.manual_seed(5)
    transformer = Transformer(str(network), max_seq_length=length, do_lower_case=lower)
    SentenceTransformer(modules=[transformer, *layers], device="cpu", **settings).save(str(folder))
    return folder


def spec_of(folder: Path, **choices: Any) -> EncoderSpec:  # noqa: ANN401 - of an option
    return spec_from_recipe("mine", read_recipe(str(folder), RecipeOptions(**choices)))

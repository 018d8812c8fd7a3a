"""Settings of an encoder (``EncoderSpec``), and the token ids that its tokenizer gives to its model (``Tokens``)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from wikidx.base.validation import options
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.networks.checkpoints import Checkpoint, PluggedModel, RequiredFiles, ServedModel, checksums, locate, required_files
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.networks.pooling import split_modes

Side = Literal["query", "passage"]
Pair = tuple[str, str]

NO_NETWORK: Mapping[str, Any] = {"pooling": "", "max_query_tokens": 0, "max_passage_tokens": 0}
"""Settings of encoders whose vectors a server or a plug-in's code computes: these settings are its own."""


class Tokens(NamedTuple):
    """The tokens of n texts, special tokens included, concatenated.

    Attributes:
        ids: int32, one per token.
        ends: int64, shape (n,): text i is ``ids[ends[i - 1]:ends[i]]``, text 0 starts at 0.
        types: uint8, one per token: the segment, 0 or 1. None: all 0.
        n_unpooled: tokens at the beginning of each text that pooling leaves out; see ``EncoderSpec.pools_prompt``.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]
    types: NDArray[np.uint8] | None
    n_unpooled: int = 0

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each text, shape (n,)."""
        return np.diff(self.ends, prepend=0)

    def split(self, numbers: NDArray[np.int64] | None = None) -> tuple[list[NDArray[np.int32]], list[NDArray[np.uint8]] | None]:
        """Return the tokens of each of the texts numbered ``numbers`` (None: all), and their types."""
        ends, lengths = (part if numbers is None else part[numbers] for part in (self.ends, self.lengths()))
        spans = [slice(end - length, end) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
        return [self.ids[span] for span in spans], None if self.types is None else [self.types[span] for span in spans]


def identity(query: str) -> str:
    """Return a query unchanged."""
    return query


@options
class EncoderSpec:
    """Settings for encoding texts as vectors for inner-product search. Picklable: all functions are module-level.

    Attributes:
        name: the encoder's name in idx.
        query_checkpoint, passage_checkpoint: weights and tokenizer of each side, or a model at an endpoint; the same except for DPR.
        query_class, passage_class: transformers class that loads each side's network; None: see ``loading.encoder_class``.
        dim: vector dimension of the authors' checkpoint; other checkpoints of the family may differ.
        pooling: a mode of ``pooling.MODES``, such as "mean" or "cls", or several joined by "+", whose vectors are concatenated; "": the
            server's.
        dense: folders of linear layers with an activation, in the checkpoint, that are applied to the pooled vector in turn.
        truncate_dim: components that are kept of each vector (Matryoshka); None: all.
        normalize: scale vectors to length 1, so that the inner product is the cosine.
        max_query_tokens, max_passage_tokens: maximum lengths, special tokens included.
        query_text: query -> the tokenizer's input.
        passage_text: passage -> the tokenizer's input: a text, or a pair that the tokenizer joins with a separator.
        query_prompt, passage_prompt: text before the tokenizer's input, which is then not a pair.
        pools_prompt: whether pooling includes the prompt's tokens, and the special tokens before them.
        second_type: token type of a pair's second text and the separator after it; all other tokens have type 0.
        splits_white_space: split texts at white space first, as SentencePiece does; needed if the ``tokenizer.json`` omits this step.
        truncation_favors: text that keeps the extra token if both texts of a pair are truncated to an odd total: "longer", as in
            tokenizers in Rust, or "first", as in tokenizers in Python.
        extra_sep_position: position of an additional separator after a shorter text (DPR's code since 2021), or None.
        by_transformers: use the tokenizer that transformers makes of the checkpoint's files, whatever its form. Otherwise the tokenizer is
            the checkpoint's ``tokenizer.json``, and must have the special tokens and the size that the published encoders have.
        lower_case: convert texts to lower case first.
        trusts_code: run the network's code in the checkpoint's Python files.
        code_sha256: checksum of the plug-in's file; None: the encoder is no plug-in.
        gpu_dtype: default precision of the forward pass on a GPU.
        weights_sha256: checksum of ``model.safetensors`` if the weights come from a third party.
    """

    plugin_kind: ClassVar[str] = "encoder"

    name: str
    query_checkpoint: Checkpoint
    passage_checkpoint: Checkpoint
    query_class: str | None = None
    passage_class: str | None = None
    dim: Annotated[int, Field(ge=0)]
    pooling: str
    dense: tuple[str, ...] = ()
    truncate_dim: Annotated[int | None, Field(ge=1)] = None
    normalize: bool
    max_query_tokens: Annotated[int, Field(ge=0)]
    max_passage_tokens: Annotated[int, Field(ge=0)]
    query_text: Callable[[str], str] = identity
    passage_text: Callable[[Passage], str | Pair] = title_and_text
    query_prompt: str = ""
    passage_prompt: str = ""
    pools_prompt: bool = True
    second_type: Literal[0, 1] = 0
    splits_white_space: bool = False
    truncation_favors: Literal["longer", "first"] = "longer"
    extra_sep_position: int | None = None
    by_transformers: bool = False
    lower_case: bool = False
    trusts_code: bool = False
    code_sha256: str | None = None
    gpu_dtype: Dtype = "float16"
    weights_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.has_network:
            split_modes(self.pooling)

    def folder(self, side: Side) -> Path:
        """Return the directory with one side's checkpoint; raises as ``checkpoints.locate`` does."""
        return locate(self.checkpoint(side), self.name, self.required_files)

    def source(self, side: Side) -> str:
        """Return the directory with one side's checkpoint, or the name of what else computes the vectors; raises as ``folder`` does."""
        return str(self.folder(side) if self.has_network else self.checkpoint(side))

    @property
    def is_served(self) -> bool:
        """True if a server computes the vectors."""
        return isinstance(self.passage_checkpoint, ServedModel)

    @property
    def has_network(self) -> bool:
        """True if the vectors are computed here, by a network of a checkpoint, and not by a server or the code of a plug-in."""
        return not isinstance(self.passage_checkpoint, ServedModel | PluggedModel)

    @property
    def required_files(self) -> RequiredFiles:
        """Files of the checkpoint that affect the vectors."""
        return required_files(self.dense, by_transformers=self.by_transformers)

    def checkpoint(self, side: Side) -> Checkpoint:
        """Return the checkpoint of one side."""
        return self.query_checkpoint if side == "query" else self.passage_checkpoint

    def max_tokens(self, side: Side) -> int:
        """Return the maximum length of one side's texts."""
        return self.max_query_tokens if side == "query" else self.max_passage_tokens

    def prompt(self, side: Side) -> str:
        """Return the text before each of one side's texts."""
        return self.query_prompt if side == "query" else self.passage_prompt

    def recipe(self) -> dict[str, str]:
        """Return all settings that affect the vectors, except the checkpoint's files, by name; texts are templates."""
        texts = {"query": self.query_text("{query}"), "passage": self.passage_text(Passage("", "{title}", "{text}"))}
        others = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in _NOT_IN_RECIPE}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in {**texts, **others}.items()}


_NOT_IN_RECIPE = {"name", "query_checkpoint", "passage_checkpoint", "query_class", "passage_class", "dim"}
_NOT_IN_RECIPE |= {"query_text", "passage_text", "gpu_dtype", "weights_sha256"}


def weight_checksums(spec: EncoderSpec) -> dict[str, str]:
    """Return the sha256 of each file that affects the vectors, by side and name; raises as ``EncoderSpec.folder`` does."""
    has_one = spec.query_checkpoint == spec.passage_checkpoint
    return _side_checksums(spec, "passage") | ({} if has_one else _side_checksums(spec, "query"))


def changed_weights(spec: EncoderSpec, recorded: Mapping[str, str]) -> list[str]:
    """Return the names of the query side's files that have other checksums than those recorded at embedding time.

    Files without a recorded checksum are ignored, because the same weights are published in several formats.
    """
    current = _side_checksums(spec, "passage" if spec.query_checkpoint == spec.passage_checkpoint else "query")
    return [name for name, sha256 in current.items() if recorded.get(name, sha256) != sha256]


def changed_settings(spec: EncoderSpec, recorded: Mapping[str, object]) -> list[str]:
    """Return the settings that differ from those recorded at embedding time, as text; imported vectors have none recorded."""
    return [f"{name} {recorded[name]!r}, not {value!r}" for name, value in spec.recipe().items() if recorded.get(name, value) != value]


def _side_checksums(spec: EncoderSpec, side: Side) -> dict[str, str]:
    checkpoint = spec.checkpoint(side)
    if isinstance(checkpoint, PluggedModel):
        return {}  # its code is a setting, ``code_sha256``
    if isinstance(checkpoint, ServedModel):
        return {f"{side} model": f"{checkpoint}, input_type {side}" if checkpoint.names_sides else str(checkpoint)}
    code = ("*.py",) if spec.trusts_code else ()
    return {f"{side} {name}": sha256 for name, sha256 in checksums(spec.folder(side), spec.required_files, spec.name, code).items()}

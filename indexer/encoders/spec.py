"""Published settings of an encoder (``EncoderSpec``), and the token ids that its tokenizer gives to its model (``Tokens``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .checkpoints import Checkpoint, checksums, locate, required_files

Side = Literal["query", "passage"]
Dtype = Literal["float32", "float16", "bfloat16"]
Pair = tuple[str, str]


class Tokens(NamedTuple):
    """The tokens of n texts, special tokens included, concatenated.

    Attributes:
        ids: int32, one per token.
        ends: int64, shape (n,): text i is ``ids[ends[i - 1]:ends[i]]``, text 0 starts at 0.
        types: uint8, one per token: the segment, 0 or 1. None: all 0.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]
    types: NDArray[np.uint8] | None

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each text, shape (n,)."""
        return np.diff(self.ends, prepend=0)


def identity(query: str) -> str:
    """Return a query unchanged."""
    return query


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Settings for encoding texts as vectors for inner-product search. Picklable: all functions are module-level.

    Attributes:
        name: the encoder's name in idx.
        query_checkpoint, passage_checkpoint: weights and tokenizer of each side; the same except for DPR.
        query_class, passage_class: transformers class that loads each side's network, without heads.
        dim: vector dimension of the authors' checkpoint; other checkpoints of the family may differ.
        pooling: "mean": mean of all tokens, special tokens included; "cls": the first token.
        has_projection: apply the linear projection of the checkpoint's ``2_Dense`` to the pooled vector.
        normalize: scale vectors to length 1, so that the inner product is the cosine.
        max_query_tokens, max_passage_tokens: maximum lengths, special tokens included.
        query_text: query -> the tokenizer's input.
        passage_text: passage -> the tokenizer's input: a text, or a pair that the tokenizer joins with a separator.
        second_type: token type of a pair's second text and the separator after it; all other tokens have type 0.
        splits_white_space: split texts at white space first, as SentencePiece does; needed if the ``tokenizer.json`` omits this step.
        truncation_favors: text that keeps the extra token if both texts of a pair are truncated to an odd total: "longer", as in
            tokenizers in Rust, or "first", as in tokenizers in Python.
        extra_sep_position: position of an additional separator after a shorter text (DPR's code since 2021), or None.
        gpu_dtype: default precision of the forward pass on a GPU.
        weights_sha256: checksum of ``model.safetensors`` if the weights come from a third party.
    """

    name: str
    query_checkpoint: Checkpoint
    passage_checkpoint: Checkpoint
    query_class: str = "AutoModel"
    passage_class: str = "AutoModel"
    dim: int
    pooling: Literal["mean", "cls"]
    has_projection: bool = False
    normalize: bool
    max_query_tokens: int
    max_passage_tokens: int
    query_text: Callable[[str], str] = identity
    passage_text: Callable[[Passage], str | Pair]
    second_type: Literal[0, 1] = 0
    splits_white_space: bool = False
    truncation_favors: Literal["longer", "first"] = "longer"
    extra_sep_position: int | None = None
    gpu_dtype: Dtype = "float16"
    weights_sha256: str | None = None

    def folder(self, side: Side) -> Path:
        """Return the directory with one side's checkpoint; raises as ``checkpoints.locate`` does."""
        return locate(self.checkpoint(side), self.name, required_files(has_projection=self.has_projection))

    def checkpoint(self, side: Side) -> Checkpoint:
        """Return the checkpoint of one side."""
        return self.query_checkpoint if side == "query" else self.passage_checkpoint

    def max_tokens(self, side: Side) -> int:
        """Return the maximum length of one side's texts."""
        return self.max_query_tokens if side == "query" else self.max_passage_tokens

    def model_class(self, side: Side) -> str:
        """Return the transformers class that loads one side's network."""
        return self.query_class if side == "query" else self.passage_class


def weight_checksums(spec: EncoderSpec) -> dict[str, str]:
    """Return the sha256 of each file that affects the vectors, by side and name; raises as ``EncoderSpec.folder`` does."""
    return _side_checksums(spec, "passage") | ({} if _has_one_checkpoint(spec) else _side_checksums(spec, "query"))


def changed_weights(spec: EncoderSpec, recorded: Mapping[str, str]) -> list[str]:
    """Return the names of the query side's files that have other checksums than those recorded at embedding time.

    Files without a recorded checksum are ignored, because the same weights are published in several formats.
    """
    current = _side_checksums(spec, "passage" if _has_one_checkpoint(spec) else "query")
    return [name for name, sha256 in current.items() if recorded.get(name, sha256) != sha256]


def _has_one_checkpoint(spec: EncoderSpec) -> bool:
    return spec.query_checkpoint == spec.passage_checkpoint


def _side_checksums(spec: EncoderSpec, side: Side) -> dict[str, str]:
    required = required_files(has_projection=spec.has_projection)
    return {f"{side} {name}": sha256 for name, sha256 in checksums(spec.folder(side), required, spec.name).items()}

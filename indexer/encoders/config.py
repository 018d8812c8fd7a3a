"""``config.json``: the sizes of a checkpoint's network, held to what the code here computes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.errors import ArtifactDamaged, ArtifactMismatch

from .checkpoints import CONFIG
from .spec import EncoderSpec

_TYPES = {"bert": ("bert", "dpr"), "t5": ("t5",)}
_FIXED: Mapping[
    str, Mapping[str, str | int]
] = {  # option -> the only value that the networks here compute, which is also that of a config without it
    "bert": {"hidden_act": "gelu", "position_embedding_type": "absolute", "projection_dim": 0},
    "t5": {"feed_forward_proj": "relu"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """Sizes of a BERT."""

    n_tokens: int
    n_positions: int
    n_types: int
    n_layers: int
    n_heads: int
    hidden: int
    inner: int
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config:
    """Sizes of the encoder of a T5, whose heads together need not be as wide as its hidden states."""

    n_tokens: int
    n_layers: int
    n_heads: int
    n_buckets: int
    max_distance: int
    hidden: int
    head: int
    inner: int
    epsilon: float


def read_config(folder: Path, spec: EncoderSpec) -> BertConfig | T5Config:
    """Return the sizes of the network in a checkpoint.

    Raises:
        ArtifactMismatch: it is of another architecture than the encoder's.
        ArtifactDamaged: its ``config.json`` cannot be read.
    """
    path = folder / CONFIG
    try:
        values: Mapping[str, Any] = json.loads(path.read_bytes())
        _check(values, path, spec)
        return _bert(values) if spec.architecture == "bert" else _t5(values)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({error}): get the checkpoint of '{spec.name}' again") from error
    except KeyError as error:
        raise ArtifactDamaged(f"{path} does not say {error}: get the checkpoint of '{spec.name}' again") from error


def _check(values: Mapping[str, Any], path: Path, spec: EncoderSpec) -> None:
    types = _TYPES[spec.architecture]
    if values["model_type"] not in types:
        raise ArtifactMismatch(f"{path} is of a network '{values['model_type']}', but '{spec.name}' is a {' or '.join(types)}")
    for option, expected in _FIXED[spec.architecture].items():
        if values.get(option, expected) != expected:
            raise ArtifactMismatch(f"{path} has {option} {values[option]!r}, but '{spec.name}' is computed with {expected!r}")


def _bert(values: Mapping[str, Any]) -> BertConfig:
    return BertConfig(
        n_tokens=int(values["vocab_size"]),
        n_positions=int(values["max_position_embeddings"]),
        n_types=int(values["type_vocab_size"]),
        n_layers=int(values["num_hidden_layers"]),
        n_heads=int(values["num_attention_heads"]),
        hidden=int(values["hidden_size"]),
        inner=int(values["intermediate_size"]),
        epsilon=float(values["layer_norm_eps"]),
    )


def _t5(values: Mapping[str, Any]) -> T5Config:
    return T5Config(
        n_tokens=int(values["vocab_size"]),
        n_layers=int(values["num_layers"]),
        n_heads=int(values["num_heads"]),
        n_buckets=int(values["relative_attention_num_buckets"]),
        max_distance=int(values.get("relative_attention_max_distance", 128)),  # older configs do not say it
        hidden=int(values["d_model"]),
        head=int(values["d_kv"]),
        inner=int(values["d_ff"]),
        epsilon=float(values["layer_norm_epsilon"]),
    )

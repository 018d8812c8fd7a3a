"""``config.json``: the sizes of a checkpoint's network, held to what the code here computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.durable import json_value
from corpora.errors import ArtifactDamaged, ArtifactMismatch

from .checkpoints import CONFIG
from .failures import first_line
from .spec import EncoderSpec

_MOST = 1 << 24  # of any size: a network of more is none that exists
_MOST_LAYERS = 1 << 10
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
    values = read_object(path)
    try:
        _check(values, path, spec)
        return _bert(values) if spec.architecture == "bert" else _t5(values)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({first_line(error)}): get the checkpoint of '{spec.name}' again") from error
    except KeyError as error:
        raise ArtifactDamaged(f"{path} does not say {error}: get the checkpoint of '{spec.name}' again") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """Return what a file of JSON holds.

    Raises:
        ArtifactDamaged: it cannot be read, or holds something else than an object.
    """
    try:
        values = json_value(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({first_line(error)}): get the checkpoint again") from error
    if not isinstance(values, dict):
        raise ArtifactDamaged(f"{path} cannot be read (it is no JSON object): get the checkpoint again")
    return values


def _check(values: Mapping[str, Any], path: Path, spec: EncoderSpec) -> None:
    types = _TYPES[spec.architecture]
    if values["model_type"] not in types:
        raise ArtifactMismatch(f"{path} is of a network '{values['model_type']}', but '{spec.name}' is a {' or '.join(types)}")
    for option, expected in _FIXED[spec.architecture].items():
        if values.get(option, expected) != expected:
            raise ArtifactMismatch(f"{path} has {option} {values[option]!r}, but '{spec.name}' is computed with {expected!r}")


def _size(values: Mapping[str, Any], name: str, most: int = _MOST) -> int:
    size = int(values[name])
    if not 1 <= size <= most:
        raise ValueError(f"{name} is {size}")
    return size


def _bert(values: Mapping[str, Any]) -> BertConfig:
    config = BertConfig(
        n_tokens=_size(values, "vocab_size"),
        n_positions=_size(values, "max_position_embeddings"),
        n_types=_size(values, "type_vocab_size"),
        n_layers=_size(values, "num_hidden_layers", _MOST_LAYERS),
        n_heads=_size(values, "num_attention_heads"),
        hidden=_size(values, "hidden_size"),
        inner=_size(values, "intermediate_size"),
        epsilon=float(values["layer_norm_eps"]),
    )
    if config.hidden % config.n_heads:
        raise ValueError(f"num_attention_heads {config.n_heads} does not divide hidden_size {config.hidden}")
    return config


def _t5(values: Mapping[str, Any]) -> T5Config:
    config = T5Config(
        n_tokens=_size(values, "vocab_size"),
        n_layers=_size(values, "num_layers", _MOST_LAYERS),
        n_heads=_size(values, "num_heads"),
        n_buckets=_size(values, "relative_attention_num_buckets"),
        max_distance=_size({"relative_attention_max_distance": 128, **values}, "relative_attention_max_distance"),  # newer configs say it
        hidden=_size(values, "d_model"),
        head=_size(values, "d_kv"),
        inner=_size(values, "d_ff"),
        epsilon=float(values["layer_norm_epsilon"]),
    )
    if not 1 <= config.n_buckets // 4 < config.max_distance:
        raise ValueError(f"{config.n_buckets} buckets cannot share distances up to {config.max_distance}")
    return config

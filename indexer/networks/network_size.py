"""Size of a transformer network by its configuration: weights and memory of a forward pass. Torch is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wikidx.base.machine.fit import Demand

from .checkpoints import CONFIG, read_json_object

Dtype = Literal["float32", "float16", "bfloat16"]
DTYPE_BYTES: Mapping[Dtype, int] = {"float32": 4, "float16": 2, "bfloat16": 2}

_NAMES = {  # names of a size in configurations
    "n_layers": ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    "hidden": ("hidden_size", "d_model", "n_embd", "dim"),
    "inner": ("intermediate_size", "d_ff", "n_inner", "hidden_dim"),
    "n_heads": ("num_attention_heads", "num_heads", "n_heads", "n_head"),
    "n_positions": ("max_position_embeddings", "n_positions"),
    "vocabulary": ("vocab_size",),
}
_PRE_NORMALIZED = ("t5", "mt5", "umt5")


class NetworkSize(NamedTuple):
    """Sizes of a network.

    Attributes:
        n_layers: layers.
        hidden: components of a token's state.
        inner: components between the two products of a layer's feed-forward part.
        queries: components of all heads' queries.
        keys: components of all heads' keys, and of their values.
        vocabulary: rows of the embeddings, those of positions included.
        n_biases: heads with a bias for each pair of positions (T5), else 0.
        is_gated: whether the feed-forward part multiplies two products, as decoders' do.
        is_pre_normalized: whether a layer adds to its input, and normalises in between in float32 (T5 and decoders).
    """

    n_layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int
    n_biases: int = 0
    is_gated: bool = False
    is_pre_normalized: bool = False

    @property
    def n_weights(self) -> int:
        """Weights of the network without heads: of its layers' matrices, and of its embeddings."""
        attention = self.hidden * (2 * self.queries + 2 * self.keys)
        layers = self.n_layers * (attention + (3 if self.is_gated else 2) * self.hidden * self.inner)
        return layers + self.vocabulary * self.hidden

    def forward_bytes(self, n_tokens: int, width: int, dtype: Dtype) -> int:
        """Return the peak memory of a forward pass besides the weights: that of a layer after the first.

        Args:
            n_tokens: tokens of the batch, padding included.
            width: tokens of a text, padding included.
            dtype: precision.
        """
        size = DTYPE_BYTES[dtype]
        # The embeddings, a layer's input, and its state after attention are held in any case.
        feed_forward = (4 if self.is_pre_normalized else 3) * self.hidden + (3 if self.is_gated else 2) * self.inner
        attention = 3 * self.hidden + self.queries + 2 * self.keys
        repeated = 2 * self.queries if self.keys < self.queries else 0  # keys and values, copied for each head
        biases = self.n_biases * width
        attention += max(self.queries + repeated + biases, 2 * biases) + (width if self.is_gated else 0)
        return n_tokens * (max(feed_forward, attention) * size + width)  # the mask has a byte for each pair

    def demand(self, name: str, *, n_tokens: int, width: int, dtype: Dtype) -> Demand:
        """Return the memory of the network with a forward pass; the arguments are those of ``forward_bytes``."""
        return Demand(name, self.n_weights * DTYPE_BYTES[dtype] + self.forward_bytes(max(n_tokens, width), width, dtype))


def size_of_config(config: Mapping[str, Any]) -> NetworkSize | None:
    """Return the size that a checkpoint's ``config.json`` describes; None if it does not name all that is needed."""
    found = {size: next((config[name] for name in names if isinstance(config.get(name), int)), None) for size, names in _NAMES.items()}
    n_layers, hidden, n_heads, vocabulary = (found[name] for name in ("n_layers", "hidden", "n_heads", "vocabulary"))
    if n_layers is None or hidden is None or n_heads is None or vocabulary is None:
        return None
    head = config.get("head_dim") or config.get("d_kv") or hidden // n_heads
    is_t5 = config.get("model_type") in _PRE_NORMALIZED
    is_gated = "rms_norm_eps" in config or config.get("is_gated_act", False) or "gated" in str(config.get("feed_forward_proj"))
    return NetworkSize(
        n_layers,
        hidden,
        found["inner"] or 4 * hidden,
        n_heads * head,
        (config.get("num_key_value_heads") or n_heads) * head,
        vocabulary + (0 if is_t5 or "rms_norm_eps" in config else (found["n_positions"] or 0)),
        n_heads if is_t5 else 0,
        bool(is_gated),
        is_t5 or "rms_norm_eps" in config,
    )


def network_demand(folder: Path, name: str, *, n_tokens: int, width: int, dtype: Dtype) -> Demand:
    """Return the memory of a checkpoint's network with a forward pass; without bytes if its configuration is of an unknown form.

    Raises:
        ArtifactCorrupt: the configuration cannot be read.
    """
    size = size_of_config(read_json_object(folder / CONFIG, name))
    return Demand(name, 0) if size is None else size.demand(name, n_tokens=n_tokens, width=width, dtype=dtype)

"""BERT (Devlin et al., 2019): token ids -> hidden states. Every encoder here but GTR is one, however its authors named their class."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from .config import BertConfig

UNUSED = r"pooler\.dense\.(weight|bias)|embeddings\.position_ids"
"""What checkpoints have besides: the head of BERT's second training task, and numbers that older libraries stored."""

_EMBEDDINGS = {
    "tokens.weight": "word_embeddings.weight",
    "positions.weight": "position_embeddings.weight",
    "types.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_LAYER = {  # part of a layer -> the modules of the checkpoint that it is, one below the other
    "projected": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attended": ("attention.output.dense",),
    "attended_norm": ("attention.output.LayerNorm",),
    "inner": ("intermediate.dense",),
    "outer": ("output.dense",),
    "outer_norm": ("output.LayerNorm",),
}


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each added to its input and normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self._n_heads = config.n_heads
        self.projected = nn.Linear(config.hidden, 3 * config.hidden)  # query, key and value in one product
        self.attended = nn.Linear(config.hidden, config.hidden)
        self.attended_norm = nn.LayerNorm(config.hidden, config.epsilon)
        self.inner = nn.Linear(config.hidden, config.inner)
        self.outer = nn.Linear(config.inner, config.hidden)
        self.outer_norm = nn.LayerNorm(config.hidden, config.epsilon)

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Return the next hidden states, (n, tokens, hidden) like these; ``bias`` is added to the products of queries and keys."""
        query, key, value = self.projected(hidden).unflatten(-1, (3, self._n_heads, -1)).permute(2, 0, 3, 1, 4)
        attention = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)  # (n, heads, tokens, head)
        hidden = self.attended_norm(self.attended(attention.transpose(1, 2).flatten(2)).add_(hidden))
        inner = functional.gelu(self.inner(hidden))
        normed: torch.Tensor = self.outer_norm(self.outer(inner).add_(hidden))
        return normed


class Bert(nn.Module):
    """The network without its heads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.n_tokens, config.hidden)
        self.positions = nn.Embedding(config.n_positions, config.hidden)
        self.types = nn.Embedding(config.n_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, config.epsilon)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))

    def forward(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the last hidden states.

        Args:
            ids: tokens, (n, tokens).
            types: 0 or 1, (n, tokens); None: all 0.
            positions: (n, tokens); None: 0, 1, 2, ….
            mask: False for padding, (n, tokens); None: there is none.
        """
        typed = self.types.weight[0] if types is None else self.types(types)
        placed = self.positions.weight[: ids.shape[1]] if positions is None else self.positions(positions)
        hidden: torch.Tensor = self.norm(self.tokens(ids) + typed + placed)
        bias = None if mask is None else torch.zeros_like(mask, dtype=hidden.dtype).masked_fill(~mask, -math.inf)[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, bias)
        return hidden

    @staticmethod
    def sources(n_layers: int) -> dict[str, tuple[str, ...]]:
        """Return which tensors of a checkpoint each parameter is."""
        found: dict[str, tuple[str, ...]] = {name: (f"embeddings.{source}",) for name, source in _EMBEDDINGS.items()}
        for number in range(n_layers):
            for part, modules in _LAYER.items():
                for kind in ("weight", "bias"):
                    found[f"layers.{number}.{part}.{kind}"] = tuple(f"encoder.layer.{number}.{module}.{kind}" for module in modules)
        return found
